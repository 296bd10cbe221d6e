#!/usr/bin/env python3
# Usage: inspect_test.py STEMMA CRASH_PROGRAM [STORE_LIFE]
#
# `stemma inspect` on a directory that a writer left behind when it was killed, and on one that
# another engine wrote through stemma_store.h.
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

stemma, writer = sys.argv[1:3]
store_life = sys.argv[3] if len(sys.argv) > 3 else None


def inspect(*words, code=0):
    done = subprocess.run([stemma, "inspect", *words], capture_output=True, text=True, timeout=600)
    assert done.returncode == code, (words, done.returncode, done.stdout[-500:], done.stderr)
    return done


with tempfile.TemporaryDirectory() as base:
    store = os.path.join(base, "store")
    counts = os.path.join(base, "counts")
    with open(counts, "wb") as file:
        file.write(bytes(16))
    # Nothing there yet: told, and nothing made.
    assert "no such directory" in inspect(store, code=1).stderr
    assert "no store" in inspect(base, code=1).stderr
    assert not os.path.exists(os.path.join(base, "lock"))
    assert "unknown argument" in inspect(store, "--loud", code=2).stderr
    assert "usage" in inspect("--help").stdout

    read_end, write_end = os.pipe()
    process = subprocess.Popen([writer, "write", store, counts, str(write_end), "1", "7"],
                               pass_fds=[write_end])
    os.close(write_end)
    deadline = time.time() + 240
    heard = 0
    while heard < 16 * 400 and time.time() < deadline:
        heard += len(os.read(read_end, 65536))
    assert "another process" in inspect(store, code=1).stderr
    process.send_signal(signal.SIGKILL)
    process.wait()

    listed = json.loads(inspect(store, "--json").stdout)
    assert listed["entries"] == len(listed["list"]) > 20, listed["entries"]
    one = listed["list"][0]
    assert one["kind"] == "block" and one["end"] == 16 and len(one["key"]) == 64
    text = inspect(store).stdout
    assert one["key"] in text and "extents an entry" in text and "of the slab" in text
    assert sum(layout["entries"] for layout in listed["layouts"]) == listed["entries"]
    assert listed["layouts"][0]["layout"] == one["layout"] and f"layout {one['layout']}:" in text

    # What the kill tore is named; nothing else.
    verified = json.loads(subprocess.run([stemma, "inspect", store, "verify", "--json"],
                                         capture_output=True, text=True).stdout)
    whole = [entry for entry in verified["list"] if entry["state"] == "whole"]
    assert len(whole) + verified["damaged"] == listed["entries"] and len(whole) > 10

    out = os.path.join(base, "payload")
    inspect(store, "export", whole[0]["key"], "--out", out)
    assert os.path.getsize(out) == whole[0]["bytes"]
    assert os.stat(out).st_mode & 0o777 == 0o600
    assert "File exists" in inspect(store, "export", whole[0]["key"], "--out", out, code=1).stderr
    assert "0 entries" in inspect(store, "export", "zz", "--out", out + "2", code=1).stderr
    # Of one key there may be several kinds.
    assert "0 entries" in inspect(store, "export", whole[0]["key"] + ":state", "--out", out + "2", code=1).stderr
    inspect(store, "export", whole[0]["key"] + ":block", "--out", out + "2")
    assert os.path.getsize(out + "2") == whole[0]["bytes"]

    # One byte of a payload changed: verify says which.
    place = whole[-1]
    with open(os.path.join(store, "entries.slab"), "r+b") as slab:
        offset = place["extents"][0][0] * 4096 + 900
        slab.seek(offset)
        byte = slab.read(1)[0]
        slab.seek(offset)
        slab.write(bytes([byte ^ 1]))
    assert place["key"] in inspect(store, "verify", code=1).stdout

    compacted = json.loads(inspect(store, "compact", "--json").stdout)
    again = json.loads(inspect(store, "--json").stdout)
    assert again["entries"] == listed["entries"]
    assert again["slab_bytes"] <= listed["slab_bytes"] and compacted["bytes"] % 4096 == 0
    still_whole = json.loads(subprocess.run([stemma, "inspect", store, "verify", "--json"],
                                            capture_output=True, text=True).stdout)
    assert still_whole["damaged"] == verified["damaged"] + 1
# What an engine stored under keys of its own: its namespace is named.
if store_life:
    with tempfile.TemporaryDirectory() as base:
        store = os.path.join(base, "store")
        subprocess.run([store_life, store], check=True, capture_output=True, timeout=600)
        listed = json.loads(inspect(store, "--json").stdout)
        assert listed["entries"] == 64, listed["entries"]
        assert {entry["kind"] for entry in listed["list"]} == {"object"}
        assert len(listed["namespaces"]) == 1, listed["namespaces"]
        space = listed["namespaces"][0]
        assert space["name"] == "store_life/model" and space["entries"] == 64, space
        assert space["layout"] == f"{20261118:016x}" and space["value_bytes"] == 16384, space
        text = inspect(store).stdout
        assert "namespace store_life/model, layout" in text and "values of 16384 bytes: 64 entries" in text
        inspect(store, "verify")
print("inspect: fine")
