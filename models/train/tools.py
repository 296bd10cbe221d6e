"""Tools: their definitions, requests that need them, calls, results, and what is said of the results.

Most tools are made up: `get_<trait>(<kind>)` with words that nobody has seen, so that the definition in the prompt is
all there is to go by. A few have natural requests of their own (the weather, files, sums, a search).
"""
import json
from dataclasses import dataclass, field

from words import held_out
from worlds import OPENINGS

VERBS = "get fetch find look_up check read show query lookup load".split()
WEATHER = ("sunny", "cloudy", "rainy", "windy", "foggy", "snowy", "clear", "stormy")

ORDERS = ("Use {n} with {a}.", "Call {n} with {a}.", "Run {n} with {a}.", "Please use {n} with {a}.",
          "Now call {n} with {a}.", "Now run {n} with {a}.", "I want you to use {n} with {a}.", "{n} with {a}, please.",
          "Please start {n} with {a}.", "Could you run {n} with {a}?")
HELD_ORDERS = ("Please call {n} with {a}.", "Please run {n} with {a}.", "Now use {n} with {a}.",
               "Could you call {n} with {a}?")
# The openings of questions for training, and those for the evaluation.
TOOL_OPENINGS = tuple(tuple(o for o in OPENINGS if held_out("tool " + o) == held) or OPENINGS[:1]
                      for held in (False, True))


def dump(value):
    """JSON as the chat template writes it."""
    return json.dumps(value, ensure_ascii=False)


@dataclass
class Call:
    name: str
    arguments: dict
    result: str = ""


@dataclass
class Step:
    """What the assistant does next: calls, whose results come back, or words."""
    calls: list = field(default_factory=list)
    text: str = ""


@dataclass
class Task:
    """A request, and what a right assistant does about it."""
    request: str
    steps: list
    remembered: object = None  # A Sheet that a result has shown.


def definition(name, description, parameters):
    """A tool as clients of OpenAI's API describe it."""
    properties = {key: {"type": kind} for key, kind in parameters.items()}
    return {"type": "function", "function": {
        "name": name, "description": description,
        "parameters": {"type": "object", "properties": properties, "required": list(parameters)}}}


def name_of(tool):
    return tool["function"]["name"]


class Tool:
    """One tool that can be asked for in its own way."""

    def __init__(self, words):
        self.words = words
        self.spec = None

    def task(self):
        raise NotImplementedError

    def one(self, request, arguments, result, answer):
        return Task(request, [Step([Call(name_of(self.spec), arguments, result)]), Step(text=answer)])


class TraitTool(Tool):
    """get_<trait>(<kind>): the trait of a thing."""

    def __init__(self, words):
        super().__init__(words)
        self.trait, self.kind = words.trait(), words.kind()
        verb = words.choice(VERBS)
        name = words.choice((f"{verb}_{self.trait}", f"{verb}_{self.trait}", f"{self.kind}_{self.trait}",
                             f"{verb}_{self.kind}_{self.trait}", f"{self.trait}_of"))
        self.key = words.choice((self.kind, self.kind, "name", "id", f"{self.kind}_name"))
        self.value = words.choice(("word", "name", "city", "person", "code", "item", "number", "place"))
        description = words.choice((
            f"Returns the {self.trait} of a {self.kind}.", f"The {self.trait} of a {self.kind}.",
            f"Looks up the {self.trait} of a {self.kind}.", f"Gets the {self.trait} of one {self.kind}."))
        self.style = words.below(0, 3)
        self.spec = definition(name, description, {self.key: "string"})

    def result(self, thing, value):
        if self.style == 0:
            return value
        if self.style == 1:
            return dump({self.trait: value})
        if self.style == 2:
            return dump({self.key: thing, self.trait: value})
        return f"{self.trait}: {value}"

    def call(self):
        thing, value = getattr(self.words, self.value)(), self.words.value()
        return thing, value, Call(name_of(self.spec), {self.key: thing}, self.result(thing, value))

    def task(self):
        words = self.words
        thing, value, call = self.call()
        clauses = (f"the {self.trait} of {thing}", f"what the {self.trait} of {thing} is",
                   f"the {self.trait} of the {self.kind} {thing}")
        asks = (f"What is the {self.trait} of {thing}?", f"I need the {self.trait} of {thing}.",
                f"What is the {self.trait} of the {self.kind} {thing}?", f"Look up the {self.trait} of {thing}.",
                f"Please look up the {self.trait} of {thing}.", f"Please find the {self.trait} of {thing}.")
        if words.random() < 0.5:
            asks = tuple(o.format(c=words.choice(clauses)) for o in TOOL_OPENINGS[words.evaluating])
        answer = f"The {self.trait} of {thing} is {value}."
        return Task(words.choice(asks), [Step([call]), Step(text=answer)])

    def two(self):
        """A request that needs two calls."""
        (a, x, first), (b, y, second) = self.call(), self.call()
        request = f"What is the {self.trait} of {a} and of {b}?"
        answer = f"The {self.trait} of {a} is {x}. The {self.trait} of {b} is {y}."
        return Task(request, [Step([first, second]), Step(text=answer)])


class NamedTool(Tool):
    """A tool with a made-up name and several arguments, which is asked for by its name."""

    def __init__(self, words):
        super().__init__(words)
        self.verb = words.word(2)
        noun = words.choice((words.word, words.kind))()
        self.about = f"{self.verb} {noun}"
        self.values = {}
        for _ in range(words.below(1, 3)):
            key = words.trait() if words.random() < 0.7 else words.word(2)
            self.values[key] = words.choice(("word", "name", "number", "code", "city", "item", "colour", "price"))
        kinds = {k: "integer" if v == "number" else "string" for k, v in self.values.items()}
        said = " and ".join(self.values)
        name = f"{self.verb}_{noun}"
        self.spec = definition(name, words.choice((f"Runs {self.about} with {said}.", f"Takes {said}.",
                                                   f"Does a {self.verb}.", f"Starts the {self.about}.")), kinds)

    def task(self):
        words = self.words
        arguments, said = {}, []
        for key, kind in self.values.items():
            value = getattr(words, kind)()
            arguments[key] = int(value) if kind == "number" else value
            said.append(f"{key} {value}")
        listed = " and ".join(said)
        name = name_of(self.spec)
        orders = HELD_ORDERS if words.evaluating else ORDERS
        request = words.choice(orders).format(n=name, a=listed)
        result = words.choice((words.value, words.phrase))()
        if words.random() < 0.4:
            result = dump({words.choice(("result", "status", "value", "answer")): result})
            value = json.loads(result).popitem()[1]
        else:
            value = result
        return self.one(request, arguments, result, f"The result is {value}.")


class Weather(Tool):
    def __init__(self, words):
        super().__init__(words)
        name = words.choice(("get_weather", "weather", "current_weather", "get_current_weather"))
        self.key = words.choice(("city", "city", "location", "place"))
        self.spec = definition(name, words.choice(("Returns the weather in a city.", "The weather of a place.",
                                                   "Get the current weather.")), {self.key: "string"})

    def task(self):
        words = self.words
        city, sky, degrees = words.city(), words.choice(WEATHER), words.below(-9, 39)
        result = words.choice((dump({"temperature": degrees, "sky": sky}), f"{degrees} degrees, {sky}",
                               dump({"city": city, "temperature": degrees, "sky": sky}),
                               f"It is {sky}, {degrees} degrees."))
        asks = ("What is the weather in {c}?", "How is the weather in {c}?", "What is the weather like in {c}?",
                "What will the weather be in {c}?", "Do I need an umbrella in {c}?")
        if words.random() < 0.5:
            clause = words.choice(("the weather in {c}", "how the weather is in {c}", "what the weather is in {c}"))
            asks = (words.choice(TOOL_OPENINGS[words.evaluating]).format(c=clause),)
        return self.one(words.choice(asks).format(c=city), {self.key: city}, result,
                        f"The weather in {city} is {sky}, {degrees} degrees.")


class Sum(Tool):
    OPERATIONS = (("add", "Adds two numbers.", "Add {a} and {b}.", "What is {a} plus {b}?", lambda a, b: a + b),
                  ("subtract", "Subtracts b from a.", "Subtract {b} from {a}.", "What is {a} minus {b}?",
                   lambda a, b: a - b),
                  ("multiply", "Multiplies two numbers.", "Multiply {a} by {b}.", "What is {a} times {b}?",
                   lambda a, b: a * b))

    def __init__(self, words):
        super().__init__(words)
        name, about, self.order, self.ask, self.compute = words.choice(self.OPERATIONS)
        self.keys = words.choice((("a", "b"), ("a", "b"), ("x", "y"), ("first", "second")))
        self.spec = definition(name, about, {k: "number" for k in self.keys})

    def task(self):
        words = self.words
        a, b = int(words.number()), int(words.number())
        request = words.choice((self.order, self.ask, "Please tell me: " + self.ask)).format(a=a, b=b)
        result = self.compute(a, b)
        shown = str(result) if words.random() < 0.7 else dump({"result": result})
        return self.one(request, dict(zip(self.keys, (a, b))), shown, f"The result is {result}.")


class Search(Tool):
    def __init__(self, words):
        super().__init__(words)
        name = words.choice(("search", "web_search", "search_notes", "find_pages"))
        self.key = words.choice(("query", "query", "text", "q"))
        self.spec = definition(name, words.choice(("Searches for a text.", "Search the web.", "Finds pages.")),
                               {self.key: "string"})

    def task(self):
        words = self.words
        text = words.choice((words.phrase, words.item, words.name))()
        found = words.choice((words.phrase, words.name, words.item))()
        asks = ("Search for {t}.", "Please search for {t}.", "Find something about {t}.", "Look for {t}.")
        return self.one(words.choice(asks).format(t=text), {self.key: text}, found, f"I found: {found}.")


FILE_ANSWERS = ("ok", "done", "written", '{"ok": true}', "File written.", "success")


class Files(Tool):
    """read_file and write_file, alone and one after the other."""

    def __init__(self, words):
        super().__init__(words)
        self.reader = words.choice(("read_file", "read_file", "open_file", "read"))
        self.writer = words.choice(("write_file", "write_file", "save_file", "write"))
        self.path = words.choice(("path", "path", "file", "filename"))
        self.content = words.choice(("content", "content", "text", "data"))
        self.spec = definition(self.reader, words.choice(("Reads a file.", "Returns the content of a file.")),
                               {self.path: "string"})
        self.other = definition(self.writer, words.choice(("Writes a file.", "Writes text to a file.")),
                                {self.path: "string", self.content: "string"})

    def read(self, path, content):
        return Step([Call(self.reader, {self.path: path}, content)])

    def write(self, path, content):
        return Step([Call(self.writer, {self.path: path, self.content: content}, self.words.choice(FILE_ANSWERS))])

    def task(self):
        words = self.words
        path, content = words.path(), words.phrase()
        roll = words.random()
        if roll < 0.35:
            ask = words.choice(("What is in {p}?", "Show me {p}.", "What does {p} say?", "Read {p}.",
                                "Read the file {p}.", "What does the file {p} say?")).format(p=path)
            return Task(ask, [self.read(path, content), Step(text=f"{path} says: {content}")])
        if roll < 0.65:
            ask = words.choice(("Write {c} to {p}.", "Save {c} in {p}.", "Please write {c} to {p}.",
                                "Write {c} into the file {p}.")).format(p=path, c=content)
            return Task(ask, [self.write(path, content), Step(text=f"I have written {path}.")])
        other = words.path()
        ask = words.choice(("Copy {p} to {o}.", "Copy the content of {p} to {o}.",
                            "Read {p} and write what it says to {o}.")).format(p=path, o=other)
        return Task(ask, [self.read(path, content), self.write(other, content),
                          Step(text=f"I have written {other}.")])

    def chain(self, tool):
        """Something looked up with another tool, then written to a file."""
        thing, value, call = tool.call()
        path = self.words.path()
        ask = self.words.choice((f"Write the {tool.trait} of {thing} to {path}.",
                                 f"Look up the {tool.trait} of {thing} and write it to {path}.",
                                 f"Find the {tool.trait} of {thing} and save it in {path}."))
        return Task(ask, [Step([call]), self.write(path, value), Step(text=f"I have written {path}.")])


class Toolbox:
    """Some tools, and tasks for them."""

    def __init__(self, words):
        self.words = words
        kinds = [words.choice((TraitTool, TraitTool, NamedTool, Weather, Sum, Search, Files))
                 for _ in range(words.below(1, 5))]
        self.tools, self.specs = [], []
        for kind in kinds:
            tool = kind(words)
            specs = [tool.spec] + ([tool.other] if isinstance(tool, Files) else [])
            taken = {name_of(s) for s in self.specs}
            traits = {t.trait for t in self.tools if isinstance(t, TraitTool)}
            same = kind not in (TraitTool, NamedTool) and any(isinstance(t, kind) for t in self.tools)
            if same or any(name_of(s) in taken for s in specs):
                continue
            if isinstance(tool, TraitTool) and tool.trait in traits:
                continue
            self.tools.append(tool)
            self.specs.extend(specs)
        self.specs.sort(key=lambda _: words.random())

    def traits(self):
        return [t.trait for t in self.tools if isinstance(t, TraitTool)]

    def task(self):
        words = self.words
        tool = words.choice(self.tools)
        files = next((t for t in self.tools if isinstance(t, Files)), None)
        if isinstance(tool, TraitTool):
            if files and words.random() < 0.4:
                return files.chain(tool)
            if words.random() < 0.08:
                return tool.two()
        return tool.task()
