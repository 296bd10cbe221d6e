# Usage: python3 tests/program/run_test.py PROGRAM NAME
#
# scripts/run as people and other programs use it, with a tiny model. NAME is one of the tests
# below.
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

root = pathlib.Path(__file__).resolve().parent.parent.parent
program = sys.argv[1]
command = [sys.executable, root / "scripts" / "run", "--small", "--program", program]
# What is reused must not depend on how fast this machine computes and copies.
os.environ["STEMMA_TEST_STILL_CLOCK"] = "1"


def run(*arguments, command=command):
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=2400, check=False)
    print(done.stdout, done.stderr, sep="")
    return done


def start():
    """A run that stays up, and the process of its server."""
    process = subprocess.Popen([*command, "--port", "0"], stdout=subprocess.PIPE, text=True)
    for line in process.stdout:
        print(line, end="")
        if found := re.search(r"The server is up, process (\d+)", line):
            return process, int(found.group(1))
    raise AssertionError(f"it ended with {process.wait()}")


def is_running(pid):
    try:
        os.kill(pid, 0)
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def EveryPromptAfterTheFirstIsReused():
    done = run("--once", "--port", "0")
    assert done.returncode == 0
    rows = re.findall(r"^(A|B)\w+.*?(\d+) +(\d+) +(\d+)  (\S+) +[\d.]+ +[\d.]+$", done.stdout, re.M)
    assert len(rows) == 5, rows
    for i, (_, prompt, reused, evaluated, source) in enumerate(rows):
        assert int(prompt) == int(reused) + int(evaluated)
        assert (int(reused) == 0 and source == "-") if i == 0 else 2 * int(reused) > int(prompt)
    assert "segments" in rows[-1][-1]
    assert "run: computed by CPU" in done.stdout or "layers" in done.stdout
    assert run("--once", "--port", "0", "--", "--reuse", "disabled").returncode == 1


def TheShippedModelAnswersFromItsNotes():
    """What a newcomer sees first. Facts are asked of the notes, so wrong KV would give wrong answers."""
    done = run("--once", "--port", "0", command=[word for word in command if word != "--small"])
    assert done.returncode == 0
    notes = (root / "models" / "museum.txt").read_text()
    answers = re.findall(r"^  (?:Ada|Ben): .*\n +(.+)$", done.stdout, re.M)
    assert len(answers) == 4, answers
    for answer, fact in zip(answers, ("16:20", "23.95", "19:40", "2415")):
        assert fact in answer and fact in notes, answer
    rows = re.findall(r"^(?:Ada|Ben)\b.*?  +(\d+) +(\d+) +(\d+)  \S+ ", done.stdout, re.M)
    assert len(rows) == 5, rows
    for prompt, _, evaluated in rows[1:]:
        assert int(prompt) > 2000 and 20 * int(evaluated) < int(prompt), (prompt, evaluated)


def ABusyPortIsNamed():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = run("--once", "--port", str(port))
    assert done.returncode == 1
    assert f"port {port} is in use" in done.stderr and "PORT=8081" in done.stderr


def ABadModelIsNamed():
    with tempfile.NamedTemporaryFile(suffix=".gguf") as model:
        model.write(b"this is no model")
        model.flush()
        done = run("--once", "--port", "0", "--model", model.name)
        assert done.returncode == 1
        assert "stemma serve: " in done.stderr and "ended with status 1" in done.stderr
    assert run("--model", "nowhere.gguf").returncode == 1


def SigtermEndsTheServerToo():
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        process, server = start()
        assert is_running(server)
        process.send_signal(number)
        rest = process.communicate(timeout=240)[0]
        assert process.returncode == 0 and " ended" in rest, (process.returncode, rest)
        assert not is_running(server)


def TheServerOutlivesNobody():
    process, server = start()
    process.kill()
    process.wait()
    deadline = time.monotonic() + 240
    while is_running(server):
        assert time.monotonic() < deadline
        time.sleep(0.05)


globals()[sys.argv[2]]()
