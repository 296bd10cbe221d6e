# Usage: python3 tests/program/gpu_bench_test.py PROGRAM NAME
#
# bench/gpu as a newcomer uses it, without a GPU and with a tiny model. NAME is one of the tests
# below.
import math
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
root = pathlib.Path(__file__).resolve().parent.parent.parent
folder = root / "bench" / "gpu"
sys.path.insert(0, str(folder))
import conversations  # noqa: E402
import disk  # noqa: E402
import flatness  # noqa: E402
import metrics  # noqa: E402
import report  # noqa: E402
import servers  # noqa: E402
from client import Answer  # noqa: E402
from prompts import Prompts  # noqa: E402
from rows import ROWS, Samples  # noqa: E402

program = sys.argv[1]


def run(script, *arguments):
    command = [sys.executable, folder / script, "--stemma", program, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2400, check=False)
    print(done.stdout, done.stderr, sep="")
    return done


def model_in(place):
    assert run("prepare", "--small", "--out", place, "8b").returncode == 0
    return pathlib.Path(place) / "small-8b.gguf"


def samples(*times, source="live"):
    return Samples(list(times), [source] * len(times))


def row_in(results, row, length):
    """The cells of one row of the printed table, or None."""
    sources = r"(?P<source>\w+|\d+ \w+(?: \d+ \w+)+)"
    return re.search(rf"^{re.escape(ROWS[row])} +{length} +[\d.]+ +[\d.]+  {sources} +(?P<live>[\d.]+|-) +(?:[\d.]+|-)"
                     rf" +(?P<llama>[\d.]+|-) +(?:[\d.]+|-) +(?:[\d.]+|-)  (?P<verdict>.*)$", results, re.M)


def EveryRowIsMeasured():
    with tempfile.TemporaryDirectory() as place:
        model, out = model_in(place), pathlib.Path(place) / "results.txt"
        done = run("run", "--model", model, "--cpu", "--tokens", "128,256", "--quick", "--mixed-seconds", 1,
                   "--flat-requests", 40, "--flat-bytes", "4MiB", "--disk", place, "--out", out,
                   "--llama-server", root / "tests" / "program" / "fake_llama_server.py")
        assert done.returncode == 0
        results = out.read_text()
        # Everything that it made beside the results is gone.
        assert sorted(os.listdir(place)) == ["results.txt", "small-8b.gguf"]
    assert results in done.stdout
    for word in ("command ", "commit ", "machine ", "GPU ", "model "):
        assert re.search("^" + word, results, re.M), word
    # Where a prompt comes from is the server's choice: it computes what it takes to be faster computed, and with a
    # model this small that depends on the machine. The prompts of these two rows exist nowhere else, though.
    for row in ("cold", "again", "repeat", "streaming", "tail", "host", "disk", "idle", "six"):
        for length in (128, 256):
            line = row_in(results, row, length)
            assert line, (row, length)
            if row in ("cold", "idle"):
                assert line["source"] == "computed", line
            has_live, has_llama = line["live"] != "-", line["llama"] != "-"
            assert has_live == (row in ("cold", "again", "repeat", "streaming")), (row, line)
            assert has_llama == (row != "disk"), (row, line)
    assert re.search(r"^disk: [\d.]+ GB/s \(", results, re.M)
    assert re.search(r"^mixed streams: \d+ requests, 0 clients failed", results, re.M)
    assert re.search(r"^memory over 40 requests, [1-9]\d* evictions, 0 clients failed", results, re.M)


def OnlyWhatWasAskedForIsMeasured():
    with tempfile.TemporaryDirectory() as place:
        done = run("run", "--model", model_in(place), "--cpu", "--tokens", "128", "--quick", "--only", "tail")
    assert done.returncode == 0
    assert ROWS["tail"] in done.stdout and ROWS["host"] not in done.stdout and "live: starting" not in done.stdout


def WrongUseIsNamed():
    with tempfile.NamedTemporaryFile(suffix=".gguf") as model:
        for arguments, message in (
                (["--model", "nowhere.gguf"], "there is no file nowhere.gguf"),
                (["--model", model.name, "--tokens", "many"], "--tokens takes numbers"),
                (["--model", model.name, "--tokens", "8"], "--tokens takes numbers"),
                (["--model", model.name, "--only", "cold,colder"], "there is no colder"),
                (["--model", model.name, "--saved-bytes", "much"], "--saved-bytes takes a size"),
                (["--model", model.name, "--sequences", "1"], "--sequences must be at least 2"),
                (["--model", model.name, "--llama-server", "nowhere"], "there is no program nowhere"),
                (["--model", model.name, "--disk", "nowhere"], "there is no folder nowhere"),
                (["--model", model.name, "--out", "nowhere/r.txt"], "there is no folder for nowhere/r.txt")):
            done = run("run", "--cpu", *arguments)
            assert done.returncode == 2 and message in done.stderr, (arguments, done.stderr)
        assert "there is no program" in run("run", "--stemma", "nowhere", "--model", model.name).stderr
        assert "there is no shape 9b" in run("prepare", "9b").stderr
        assert "--clients must be at least 1" in run("exact", "--model", model.name, "--clients", 0).stderr
        # A server that cannot start is a failure, and its own words say why.
        done = run("run", "--cpu", "--model", model.name, "--tokens", "128")
        assert done.returncode == 1 and "stemma ended with status 1" in done.stderr and "stemma serve:" in done.stdout


def children_of(pid):
    return [int(word) for word in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_running(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def broken_off(break_off):
    """The output of a run that break_off(its process, its server's pid) ended in the middle of long prompts."""
    with tempfile.TemporaryDirectory() as place:
        command = [sys.executable, folder / "run", "--stemma", program, "--model", model_in(place), "--cpu",
                   "--tokens", "128,4096", "--out", f"{place}/results.txt"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            for line in process.stdout:
                print(line, end="")
                if "stemma: 4096 tokens" in line:
                    break
            [server] = children_of(process.pid)
            break_off(process, server)
            rest = process.communicate(timeout=240)[0]
        print(rest)
        assert process.returncode == 1 and not is_running(server)
        # What was measured before is not lost.
        assert ROWS["host"] in pathlib.Path(f"{place}/results.txt").read_text()
    return rest


def AnInterruptEndsTheServers():
    assert "it was interrupted" in broken_off(lambda process, _: process.send_signal(signal.SIGINT))


def AServerThatDiesIsNamed():
    output = broken_off(lambda _, server: os.kill(server, signal.SIGABRT))
    assert "stemma ended by itself with status -6; its last lines:" in output and " ready " in output


def AnswersAreComparedWithAndWithoutReuse():
    with tempfile.TemporaryDirectory() as place:
        assert run("prepare", "--small", "--out", place).returncode == 0
        for shape in ("8b", "window", "recurrent", "hybrid"):
            done = run("exact", "--model", f"{place}/small-{shape}.gguf", "--cpu", "--conversations", 3,
                       "--tokens", 256, "--answer", 8)
            assert done.returncode == 0
            assert re.search(r"^3 conversations, \d+ turns, [1-9]\d* equal tokens, \d+ ties, 0 differences$",
                             done.stdout, re.M)


def answer(*tokens):
    """An answer of (token, {token: logarithm of likelihood}) pairs."""
    made = Answer()
    made.report = {"evaluated_tokens": 1}
    made.reused = 1
    made.logprobs = [{"tokens": [token], "token_logprobs": [likely[token]], "top_logprobs": [likely]}
                     for token, likely in tokens]
    return made


def ADifferenceThatIsNoTieCounts():
    near = {"a": -0.70, "b": -0.71, "c": -9.0}
    far = {"a": -0.10, "b": -3.00, "c": -9.0}
    cases = [
        (answer(("a", near)), answer(("a", far)), 0, 0),
        (answer(("a", near)), answer(("b", near)), 1, 0),
        # One of the two answers found the tokens far apart: no rounding does that.
        (answer(("a", far)), answer(("b", near)), 0, 1),
        # A token that was not even among the likeliest.
        (answer(("a", near)), answer(("x", {"x": -0.1, "a": -5.0})), 0, 1),
        # One answer is longer.
        (answer(("a", near), ("a", near)), answer(("a", near)), 0, 1),
    ]
    for ours, theirs, ties, differences in cases:
        tally = conversations.Tally(0.005, say=print)
        tally.turn(1, ours, theirs, theirs)
        assert (len(tally.shares) - tally.differences, tally.differences) == (ties, differences), tally.shares
        assert tally.good == (differences == 0)
    failed = conversations.Tally(0.005, say=print)
    failed.turn(1, *cases[0][:2], cases[0][1])
    failed.fail("no answer")
    assert not failed.good and not conversations.Tally(0.005, say=print).good


def AGapThatComputingTwiceShowsIsATie():
    def gap(size):
        return answer(("a", {"a": -1.0, "b": -1.0 - size, "c": -11.0})), answer(("b", {"a": -1.0 - size, "b": -1.0,
                                                                                      "c": -11.0}))

    ours, theirs = gap(0.2)
    tally = conversations.Tally(0.005, say=print)
    tally.turn(1, ours, theirs, theirs)
    assert tally.differences == 1 and not tally.good
    # Two computed answers differ by as much: the cache is not to blame for a gap of that size.
    computed, control = gap(0.3)
    tally.turn(1, computed, computed, control)
    assert tally.differences == 0 and tally.good and tally.noise > 0.005
    # A larger gap still counts.
    ours, theirs = gap(3)
    tally.turn(1, ours, theirs, theirs)
    assert tally.differences == 1 and not tally.good
    assert "1 differences" in tally.lines()[0]
    # Nothing was reused, so the cache has nothing to do with it.
    ours, theirs = gap(3)
    ours.reused = 0
    tally.turn(1, ours, theirs, theirs)
    assert tally.differences == 0 and tally.good
    ours, theirs = gap(5)
    tally.turn(1, ours, theirs, theirs)
    assert tally.differences == 1
    # A gap that nobody knows says nothing about others.
    tally.turn(1, computed, computed, answer(("x", {"x": -0.1, "c": -11.0})))
    assert tally.differences == 1 and math.isfinite(tally.noise)


def MetricsAreReadAndCompared():
    def reading(counts, moved, seconds):
        buckets = "".join(f'wait_bucket{{le="{bound}"}} {count}\n' for bound, count in counts)
        return metrics.Reading(f"# HELP x\n{buckets}bytes_total{{kind=\"a\"}} {moved}\nbytes_total{{kind=\"b\"}} 1\n"
                               f"seconds_total {seconds}\n")

    before = reading([("0.001", 5), ("0.01", 5), ("+Inf", 5)], 100, 1)
    after = reading([("0.001", 55), ("0.01", 105), ("+Inf", 105)], 4e9 + 100, 1.1)
    assert abs(metrics.quantile(before, after, "wait", 0.5) - 0.001) < 1e-9
    assert abs(metrics.quantile(before, after, "wait", 0.99) - (0.001 + 0.009 * 0.98)) < 1e-9
    late = reading([("0.001", 5), ("0.01", 5), ("+Inf", 6)], 100, 1)
    assert math.isinf(metrics.quantile(before, late, "wait", 0.5))
    assert metrics.quantile(before, before, "wait", 0.5) is None
    assert metrics.quantile(before, after, "nothing", 0.5) is None
    assert abs(metrics.speed(before, after, ["missing_total", "bytes_total"], ["seconds_total"]) - 40) < 1e-6
    assert metrics.speed(before, after, ["bytes_total"], ["missing_total"]) is None
    assert metrics.percentile([3, 1, 2], 0.5) == 2 and metrics.percentile([3, 1, 2], 0.99) == 3


def BarsAreJudged():
    def missed(row, length=8192, **more):
        return [bar.text for bar in report.row_bars(row, length, **more) if not bar.met]

    ours = {"cold": samples(400, source="computed"), "again": samples(13), "host": samples(50, source="restored"),
            "idle": samples(420, source="computed"), "disk": samples(700, source="disk")}
    assert missed("again", ours=ours, live={"again": samples(10)}) == []
    assert missed("again", ours=ours, live={"again": samples(9.9)}) == ["<= 1.3x live"]
    assert missed("again", ours=ours, llama={"again": samples(11)}) == ["<= 1.1x llama-server"]
    assert missed("host", ours=ours) == []
    assert missed("host", ours={**ours, "host": samples(51, source="restored")}) == ["<= 50 ms"]
    assert missed("host", ours={**ours, "cold": samples(349)}) == [">= 7x faster than cold"]
    # Fast, but it had never left its sequence: that shows nothing.
    assert missed("host", ours={**ours, "host": samples(5)}) == ["all restored"]
    assert missed("host", ours=ours, llama={"host": samples(499)}) == [">= 10x faster than llama-server"]
    assert missed("idle", ours=ours) == []
    assert missed("idle", ours={**ours, "idle": samples(421)}) == ["<= 1.05x cold"]
    assert missed("disk", ours=ours, disk_ms=(500, 700)) == []
    assert missed("disk", ours=ours, disk_ms=(500, 699)) == ["<= 699 ms"]
    # Computed: right where the disk alone takes longer than that.
    computed = {**ours, "disk": samples(400, source="computed")}
    assert missed("disk", ours=computed, disk_ms=(401, 430)) == []
    assert missed("disk", ours=computed, disk_ms=(399, 430)) == ["all from disk"]
    row = disk.DiskRow()
    row.stored_bytes = 8 * 10**8
    assert abs(row.bar_ms(1e9) - 1030) < 1e-6

    whole = report.Report(judge=True)
    whole.add("stemma", 8192, {**ours, "host": samples(51, source="restored")})
    whole.fact("saving", [report.Bar(">= 40 GB/s", False)])
    text = "\n".join(whole.lines())
    assert "MISSED: <= 50 ms" in text and "saving  MISSED: >= 40 GB/s" in text and whole.missed == 2
    assert "MISSED" not in "\n".join(report.Report(judge=False).lines())


def GrowingMemoryIsNotFlat():
    def snapshot(**mib):
        made = flatness.Snapshot.__new__(flatness.Snapshot)
        made.mib = mib
        return made

    def flat(*snapshots, failed=()):
        return flatness.Flatness(list(snapshots), 1, list(failed)).flat

    assert flat(snapshot(resident=1000, GPU=100), snapshot(resident=1030, GPU=100))
    assert not flat(snapshot(resident=1000, GPU=100), snapshot(resident=1000, GPU=140))
    assert not flat(snapshot(resident=1000), snapshot(resident=1000), failed=["a client"])


def MeasuringWaitsForPinnedMemory():
    now = [0.0]

    def sleep(seconds):
        now[0] += seconds

    def waited(read):
        now[0] = 0.0
        return servers.wait_until_steady(read, clock=lambda: now[0], sleep=sleep)

    assert waited(lambda: None) == 0 and now[0] == 0
    # It grows for ten seconds, and then two more show that it does not.
    assert 9.5 < waited(lambda: min(now[0], 10)) < 10.5 and 11.5 < now[0] < 12.5
    # A value that never comes to rest is not waited for without end.
    assert waited(lambda: now[0]) <= 121


def AGpuIsAskedAndItsRowsAreJudged():
    with tempfile.TemporaryDirectory() as place:
        smi = pathlib.Path(place) / "nvidia-smi"
        smi.write_text("""#!/bin/sh
case "$1" in
  *compute-apps*) ;;
  *memory.used*) echo 1234 ;;
  *) echo "NVIDIA Test, 4096 MiB, 580.1" ;;
esac
""")
        smi.chmod(0o755)
        os.environ["PATH"] = f"{place}:{os.environ['PATH']}"
        done = run("run", "--model", model_in(place), "--tokens", "128", "--quick", "--only", "host,flat", "--strict",
                   "--flat-requests", 40, "--flat-bytes", "1GiB")
    assert "NVIDIA Test, 4096 MiB with driver 580.1" in done.stdout
    assert re.search(r"GPU, all processes +1234 +1234  flat", done.stdout)
    # Whether a model this small is restored or computed depends on the machine; the verdict follows from it.
    host = row_in(done.stdout, "host", 128)
    assert host["verdict"] == ("met" if host["source"] == "restored" else "MISSED: all restored"), host
    # So much memory pushes nothing out, so that the test of flatness would show nothing.
    assert "MISSED: something was evicted" in done.stdout and done.returncode == 1


def PromptsShareNothing():
    prompts, again = Prompts(), Prompts()
    dealt = [prompts.fresh(100) for _ in range(300)]
    assert dealt == [again.fresh(100) for _ in range(300)]
    assert len({tuple(prompt[:4]) for prompt in dealt}) == 300 and all(len(prompt) == 100 for prompt in dealt)
    for _ in range(100):
        changed = prompts.other_tail(dealt[0], 32)
        assert len(changed) == 100 and changed[:68] == dealt[0][:68] and changed[68] != dealt[0][68]


globals()[sys.argv[2]]()
