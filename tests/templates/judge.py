"""Usage: judge.py REQUESTS

Renders templates with Jinja2 itself, set up as Hugging Face's apply_chat_template does. REQUESTS has a
JSON object a line: {"template": text, "variables": {...}}. Answers, in order, on standard output:
"ok BYTES", a newline, the text, a newline; or "error BYTES" and the message likewise.
Exits with 77 if Jinja2 is not installed.
"""
import datetime
import json
import sys

try:
    import jinja2
    import jinja2.ext
    import jinja2.nodes
    import jinja2.sandbox
except ImportError:
    sys.exit(77)


class Generation(jinja2.ext.Extension):
    """{% generation %} marks what a model says; the text is the same."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.Scope(body, lineno=line)


def raise_exception(message):
    raise jinja2.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(
        x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def strftime_now(format):
    return datetime.datetime(2025, 1, 5, 12, 34, 56).strftime(format)


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = strftime_now
    return env


def main():
    env = environment()
    parsed = {}
    out = sys.stdout.buffer
    with open(sys.argv[1], encoding="utf-8") as requests:
        for line in requests:
            request = json.loads(line)
            source = request["template"]
            try:
                if source not in parsed:
                    parsed[source] = env.from_string(source)
                verdict, text = "ok", parsed[source].render(**request["variables"])
            except Exception as error:  # Whatever a template does wrong.
                verdict, text = "error", f"{type(error).__name__}: {error}"
            data = text.encode("utf-8", "replace")
            out.write(f"{verdict} {len(data)}\n".encode() + data + b"\n")


main()
