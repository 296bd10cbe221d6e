# Usage: python3 tests/program/replay_test.py PROGRAM NAME
#
# `stemma replay` and `stemma trace` as people and other programs use them. NAME is one of the tests
# below; 77 says that it cannot be run here.
import json
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib

program = sys.argv[1]
folder = pathlib.Path(tempfile.mkdtemp(prefix="stemma-replay-"))


def run(*arguments, code=0, text=None):
    done = subprocess.run([program, *map(str, arguments)], input=text, capture_output=True, text=True,
                          timeout=600, check=False)
    print("$", *arguments, "\n", done.stdout[-4000:], done.stderr[-2000:], sep=" ")
    assert done.returncode == code, done.returncode
    return done


def make(kind="mix", requests=400, **options):
    path = folder / f"{kind}.jsonl"
    extra = [f"--{name}={value}" for name, value in options.items()]
    run("trace", "make", kind, f"--requests={requests}", "--out", path, *extra)
    return path


def line(time, ids, **more):
    return json.dumps({"timestamp": time, "input_length": 512 * len(ids), "hash_ids": ids, **more}) + "\n"


def JsonHasAnObjectPerPolicyAndCapacity():
    path = make()
    text = run("replay", path, "--json", "--policy=lru", "--policy", "min", "--policy", "infinite", "--capacity", "50",
               "--capacity=10%", "--hints", "off").stdout
    results = json.loads(text)
    assert [r["policy"] for r in results] == ["lru", "lru", "min", "min", "infinite"]
    keys = ["trace", "policy", "hints", "capacity_blocks", "requests", "block_refs", "block_hits", "hit_ratio",
            "cost_weighted_hit_ratio", "evictions", "seconds"]
    for r in results:
        assert list(r) == keys, list(r)
        assert r["trace"] == "mix.jsonl" and r["hints"] is False and r["requests"] == 400
        assert abs(r["hit_ratio"] - r["block_hits"] / r["block_refs"]) < 1e-5
        assert 0 <= r["cost_weighted_hit_ratio"] <= 1
    assert results[0]["capacity_blocks"] == 50
    assert results[0]["hit_ratio"] < results[2]["hit_ratio"] < results[4]["hit_ratio"]
    again = json.loads(run("replay", path, "--json", "--policy=lru", "--capacity=50", "--hints=off", "--jobs=1").stdout)
    assert again[0]["block_hits"] == results[0]["block_hits"]


def TheTableEndsWithARecommendation():
    # Ten prompts of six blocks, in turn: a loop of 60 blocks, found wholly from 60 on.
    text = "".join(line(10 * i, [6 * (i % 10) + b for b in range(6)]) for i in range(200))
    out = run("replay", "-", "--policy", "lru", "--capacity", "30", "--capacity", "59", "--capacity", "60",
              "--capacity", "100", "--model-kv-bytes", "1000", text=text).stdout
    assert "lru: With 30.7 MB you get 95 %; more buys nothing." in out
    assert "standard input: 200 requests" in out
    out = run("replay", "-", "--policy", "all", "--capacity", "60", text=text).stdout
    assert "gdsf" in out and "\nadaptive: With 60 blocks you get 95 %; more buys nothing." in out


def TiersGiveExpectedTimesToFirstToken():
    path = make("agents", 300)
    common = ["replay", path, "--json", "--policy=lru", "--capacity=1GB", "--model-kv-bytes=131072",
              "--prefill-tokens-per-s=5000"]
    slow = json.loads(run(*common, "--tiers=host=1GB@1MB/s").stdout)[0]
    fast = json.loads(run(*common, "--tiers=host=200GB@20GB/s,disk=1TB@2GB/s").stdout)[0]
    assert fast["ttft_mean_ms"] < slow["ttft_mean_ms"] and fast["ttft_p50_ms"] <= fast["ttft_p95_ms"]
    assert "expected time to first token" in run(*[a for a in common if a != "--json"], "--tiers=host=1GB@1GB/s").stdout


def BadTracesAreNamedByLine():
    bad = folder / "bad.jsonl"
    bad.write_text(line(5, [1, 2]) + line(4, [1]) + '{"timestamp":6}\n' + line(7, [1, 2, 3]) + line(8, [9])[:30])
    done = run("replay", bad, code=1)
    assert "bad.jsonl: line 2: time goes back" in done.stderr and "--lenient" in done.stderr and not done.stdout
    done = run("replay", bad, "--lenient", "--json", "--policy=lru", "--capacity=3")
    assert "left out 3 of 5 lines" in done.stderr and "line 3: has no 'input_length'" in done.stderr
    assert json.loads(done.stdout)[0]["block_hits"] == 2
    assert "cannot be opened" in run("replay", folder / "nowhere", code=1).stderr
    assert "less than one block" in run("replay", "-", "--capacity=10%", code=2, text=line(0, [1])).stderr


def SmallTracesNeedNoArguments():
    # 30 blocks: 0.5, 1, 2 and 3 % of them are less than one.
    text = "".join(line(10 * i, [6 * (i % 5) + b for b in range(6)]) for i in range(20))
    results = json.loads(run("replay", "-", "--json", "--policy=lru", text=text).stdout)
    assert [r["capacity_blocks"] for r in results] == [1, 3, 6, 12]
    two = line(0, [1, 2]) + line(1, [1, 2]) + line(2, [1, 2])
    assert "lru: With 2 blocks you get 67 %; more buys nothing." in run("replay", "-", "--policy=lru", text=two).stdout
    assert "Nothing is worth keeping" in run("replay", "-", text=line(0, [])).stdout


def BadArgumentsAreRefused():
    for arguments, word in [([], "trace is missing"), (["x", "--policy", "best"], "there is no policy 'best'"),
                            (["x", "--capacity", "10GB"], "needs --model-kv-bytes"),
                            (["x", "--sweep", "1,200"], "no percentage"), (["x", "--hints", "maybe"], "on or off"),
                            (["x", "--tiers", "host"], "NAME=SIZE@BANDWIDTH"), (["x", "--nope"], "unknown argument"),
                            (["x", "--report"], "needs a value"), (["x", "y"], "one trace at a time"),
                            (["x", "--capacity", "18446744073709551615"], "at most 134217728 blocks")]:
        assert word in run("replay", *arguments, code=2).stderr, word
    assert "there is no kind" in run("trace", "make", "poem", code=2).stderr
    assert "at most 2147483647" in run("trace", "make", "chat", "--block-tokens", "4294967295", code=2).stderr
    assert "30 years" in run("trace", "make", "chat", "--rate", "1e-9", code=2).stderr
    assert "what to do is missing" in run("trace", code=2).stderr
    assert "lru_k" in run("replay", "--help").stdout and "convert" in run("trace", "--help").stdout


def TooLittleMemoryIsAnError():
    done = subprocess.run(["bash", "-c", 'ulimit -v 600000; exec "$0" trace make agents --requests 30000000 --out /dev/null',
                           program], capture_output=True, text=True, timeout=600, check=False)
    print(done.stderr)
    assert done.returncode == 1 and "no more memory" in done.stderr


def TracesAreMadeAndConverted():
    path = make("chat", 200, seed=5)
    assert path.read_text() == run("trace", "make", "chat", "--requests", "200", "--seed", "5").stdout
    ids = folder / "ids.jsonl"
    ids.write_text(line(0, [7, 8]) + line(1, [7, 9], session_id="secret name"))
    out = run("trace", "convert", ids).stdout
    assert "secret" not in out and '"path":[1,1]' in out
    assert json.loads(run("replay", "-", "--json", "--policy=lru", "--capacity=5", text=out).stdout)[0]["block_hits"] == 1
    assert run("trace", "make", "rag", "--out", "/nowhere/x", code=1).stderr.startswith("stemma trace: cannot write")


def pixels(png):
    """Width, height and the set of colours in every 7th row of an 8-bit RGB(A) picture."""
    data, at, packed = png.read_bytes(), 8, b""
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at:at + 8])
        if kind == b"IHDR":
            width, height, _, colour = struct.unpack(">IIBB", data[at + 8:at + 18])
        if kind == b"IDAT":
            packed += data[at + 8:at + 8 + size]
        at += 12 + size
    step = 4 if colour == 6 else 3
    raw, stride, before, colours = zlib.decompress(packed), width * step + 1, bytearray(width * step), set()
    for row in range(height):
        method, line_ = raw[row * stride], bytearray(raw[row * stride + 1:(row + 1) * stride])
        for i in range(len(line_)):
            left, up = line_[i - step] if i >= step else 0, before[i]
            corner = before[i - step] if i >= step else 0
            if method == 1:
                line_[i] = (line_[i] + left) & 255
            elif method == 2:
                line_[i] = (line_[i] + up) & 255
            elif method == 3:
                line_[i] = (line_[i] + (left + up) // 2) & 255
            elif method == 4:
                guess = left + up - corner
                near = min((abs(guess - left), 0, left), (abs(guess - up), 1, up), (abs(guess - corner), 2, corner))
                line_[i] = (line_[i] + near[2]) & 255
        before = line_
        if row % 7 == 0:
            colours.update(bytes(line_[i:i + 3]) for i in range(0, len(line_), step))
    return width, height, colours


def TheReportIsDrawnInABrowser():
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        print("there is no chromium here")
        sys.exit(77)
    page = folder / "report.html"
    run("replay", make("agents", 300), "--report", page, "--policy=lru", "--policy=arc", "--policy=min",
        "--model-kv-bytes=131072")
    assert not re.search(r'(src|href)="(?!data:)', page.read_text()), "it needs other files"
    picture = folder / "report.png"
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr",
             f"--user-data-dir={folder / 'browser'}", "--window-size=900,1400"]
    done = subprocess.run([browser, *flags, "--dump-dom", page.as_uri()], capture_output=True, text=True, timeout=600,
                          check=False)
    dom = re.sub(r"<script.*?</script>", "", done.stdout, flags=re.S)
    assert 'data-drawn="yes"' in dom, dom[-2000:] + done.stderr
    assert "CONSOLE" not in done.stderr, done.stderr
    heading = re.search(r'<h1 id="sentence">([^<]*)</h1>', dom).group(1).replace("\u00a0", " ").replace("&nbsp;", " ")
    assert re.match(r"With [\d.]+ [GT]B you get \d+ %; ", heading), heading
    assert dom.count("<polyline") == 3 + 2 + 2, "three curves; two regrets; memory saved by two"
    assert dom.count('class="bar"') == 10 + 10 and "NaN" not in dom and "undefined" not in dom
    # Nothing was ever asked for twice: every curve lies on the floor, and is drawn.
    bare = folder / "bare.html"
    run("replay", "-", "--report", bare, text="".join(line(i, [3 * i, 3 * i + 1, 3 * i + 2]) for i in range(20)))
    done = subprocess.run([browser, *flags, "--dump-dom", bare.as_uri()], capture_output=True, text=True, timeout=600,
                          check=False)
    dom = re.sub(r"<script.*?</script>", "", done.stdout, flags=re.S)
    assert 'data-drawn="yes"' in dom and "Nothing is worth keeping" in dom
    assert "CONSOLE" not in done.stderr and "NaN" not in dom and "undefined" not in dom, done.stderr
    subprocess.run([browser, *flags, f"--screenshot={picture}", page.as_uri()], capture_output=True, timeout=600, check=True)
    width, height, colours = pixels(picture)
    assert (width, height) == (900, 1400)
    for colour in ["e0483e", "d1730b", "8b95a3"]:
        assert bytes.fromhex(colour) in colours, colour


try:
    globals()[sys.argv[2]]()
finally:
    shutil.rmtree(folder, ignore_errors=True)
