# Usage: python3 tests/program/gpu_test.py PROGRAM LIBRARIES PLUGIN NAME
#
# `stemma serve` where a GPU cannot be used: what it says, and whether it goes on with the CPU.
# LIBRARIES is the folder of llama.cpp's libraries, PLUGIN the fake one (tests/support/fake_gpu.c).
# NAME is one of the tests below.
import contextlib
import http.client
import json
import os
import pathlib
import subprocess
import sys
import tempfile

program, libraries, plugin, test = sys.argv[1:]
folder = tempfile.TemporaryDirectory()
model = str(pathlib.Path(folder.name) / "tiny.gguf")


def use_libraries(kind):
    """A folder with llama.cpp's libraries for CPUs and one plugin for GPUs, and how a program is told of it."""
    mine = pathlib.Path(folder.name) / "lib"
    mine.mkdir()
    for library in pathlib.Path(libraries).glob("*.so*"):
        if library.name.startswith(("libllama", "libggml.", "libggml-base", "libggml-cpu")):
            (mine / library.name).symlink_to(library.resolve())
    name = mine / "libggml-cuda.so"
    if kind == "garbage":
        name.write_text("this is no library")
    elif kind != "none":
        name.symlink_to(plugin)
    return dict(os.environ, LD_LIBRARY_PATH=str(mine), FAKE_GPU=kind, XDG_CACHE_HOME=folder.name)


def refusal(environment, *settings):
    """Why it does not start."""
    done = subprocess.run([program, "serve", "--model", model, "--port", "0", "--context", "512", *settings],
                          env=environment, capture_output=True, text=True, check=False)
    print(done.stderr)
    assert done.returncode == 1, done.returncode
    assert " ready " not in done.stderr
    return done.stderr


@contextlib.contextmanager
def started(environment, *settings):
    """Its line `ready`, and what /props says of the devices."""
    with subprocess.Popen([program, "serve", "--model", model, "--port", "0", "--context", "512", *settings],
                          env=environment, stderr=subprocess.PIPE, text=True) as server:
        ready = next((line for line in server.stderr if " ready " in line), None)
        assert ready, server.wait()
        print(ready)
        connection = http.client.HTTPConnection(ready.split(" url=http://")[1].strip(), timeout=600)
        connection.request("GET", "/props")
        placement = json.load(connection.getresponse())["placement"]
        connection.close()
        print(placement)
        yield ready, placement
        server.terminate()
        assert server.wait() == 0


def ALibraryWithoutCodeForTheGpuIsFoundOutAtTheStart():
    environment = use_libraries("no-code")
    for settings in ([], ["--gpu-layers", "9"]):
        why = refusal(environment, *settings)
        assert "libggml-cuda.so has no code for Fake GPU (CUDA0); scripts/get-llama --cuda" in why, why
    # Not touched if nothing is to be on it.
    with started(environment, "--gpu-layers", "0") as (ready, placement):
        assert 'device="CPU: ' in ready and "--gpu-layers 0" in ready
        assert placement["device"] == "CPU" and placement["gpu_layers"] == 0


def WithoutAPluginTheCpuComputesAndSaysWhy():
    environment = use_libraries("none")
    with started(environment) as (ready, placement):
        assert 'device="CPU: llama.cpp has no library for GPUs here' in ready
        assert placement == {"device": "CPU", "layers": 3, "gpu_layers": 0, "gpus": [],
                             "why_cpu": placement["why_cpu"]}
        assert "scripts/get-llama --cuda" in placement["why_cpu"]
    why = refusal(environment, "--gpu-layers", "1")
    assert "--gpu-layers 1, but no GPU can be used: llama.cpp has no library for GPUs here" in why


def ADriverWithoutAGpuIsNamed():
    environment = use_libraries("no-device")
    reason = "libggml-cuda.so: CUDA finds no GPU (ggml_cuda_init: failed to initialize CUDA: no CUDA-capable device"
    with started(environment) as (ready, _):
        assert reason in ready
    assert reason in refusal(environment, "--gpu-layers", "1")


def APluginThatCannotBeLoadedIsNamedWithTheLoadersError():
    environment = use_libraries("garbage")
    why = refusal(environment, "--gpu-layers", "1")
    assert "libggml-cuda.so: file too short" in why or "invalid ELF header" in why, why
    with started(environment) as (ready, _):
        assert "libggml-cuda.so: " in ready


def APluginOfAnotherReleaseIsNamed():
    why = refusal(use_libraries("other"), "--gpu-layers", "1")
    assert "libggml-cuda.so: it is not a plugin of this release of llama.cpp" in why, why


with folder:
    subprocess.run([program, "make-model", "--arch", "llama", "--layers", "2", "--dim", "64", "--out", model],
                   check=True, stdout=subprocess.DEVNULL)
    globals()[test]()
