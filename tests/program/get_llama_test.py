# Usage: python3 tests/program/get_llama_test.py NAME
#
# scripts/get-llama where libraries for GPUs are asked for, on machines that have what each test
# says. Nothing is fetched or compiled: cmake, ninja, nvcc and the rest are scripts that do as they
# are told. NAME is one of the tests below.
import fcntl
import pathlib
import shutil
import subprocess
import sys
import tempfile

root = pathlib.Path(__file__).resolve().parent.parent.parent
TOOLS = ["bash", "awk", "basename", "cat", "chmod", "cp", "dirname", "flock", "grep", "mkdir", "mktemp", "mv", "nproc",
         "paste", "rm", "sed", "sort", "tail", "tee", "tr", "uname", "env"]
CMAKE = """echo "$@" >>"$LOG"
while [[ $# -gt 0 ]]; do [[ $1 != -B ]] || objects=$2; shift; done
mkdir -p "$objects"
echo CUDA_cudart_LIBRARY:FILEPATH=/opt/cuda/lib/libcudart.so >"$objects/CMakeCache.txt" """
NINJA = """echo "ninja $*" >>"$LOG"
echo "  5% of 2 Building"; echo "100% of 2 Linking"
mkdir -p "$2/bin"; for name in libggml-cuda.so libggml-base.so llama-server; do echo compiled >"$2/bin/$name"; done
chmod +x "$2/bin/llama-server" """


class Machine:
    """A folder for a llama.cpp whose CPU part is there, and a PATH with the tools that a test wants."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.target = self.folder / "llama-v0.5.0"
        (self.target / "lib").mkdir(parents=True)
        (self.target / "LICENSE").write_text("as you like\n")
        (self.target / "templates").mkdir()
        (self.folder / "source" / "ggml").mkdir(parents=True)
        (self.folder / "source" / "ggml" / "CMakeLists.txt").write_text("")
        self.bin = self.folder / "bin"
        self.bin.mkdir()
        self.log = self.folder / "log"
        self.log.write_text("")
        for tool in TOOLS:
            (self.bin / tool).symlink_to(shutil.which(tool))
        self.tool("df", "echo head; echo /dev/x 1 1 99999 1% /")
        self.tool("cmake", CMAKE)
        self.tool("ninja", NINJA)
        self.tool("g++", "exit 1")

    def tool(self, name, script):
        (self.bin / name).write_text(f"#!{shutil.which('bash')}\n{script}\n")
        (self.bin / name).chmod(0o755)

    def get(self, *arguments, **variables):
        done = subprocess.run(self.command(*arguments), env=self.environment(**variables), capture_output=True,
                              text=True, check=False, stdin=subprocess.DEVNULL)
        print(done.stdout, done.stderr, sep="")
        return done

    def command(self, *arguments):
        return [shutil.which("bash"), root / "scripts" / "get-llama", *arguments]

    def environment(self, **variables):
        return {"PATH": str(self.bin), "STEMMA_LLAMA_DIR": str(self.target), "LOG": str(self.log),
                "STEMMA_LLAMA_SOURCE": str(self.folder / "source"), "VK_DRIVER_FILES": "/no/such/file",
                "CUDA_HOME": "/no/such/folder", "TMPDIR": str(self.folder), **variables}

    def refusal(self, *arguments, **variables):
        before = sorted(self.target.rglob("*"))
        done = self.get(*arguments, **variables)
        assert done.returncode == 1, done.returncode
        assert sorted(self.target.rglob("*")) == before
        return done.stderr

    @property
    def library(self):
        return self.target / "lib" / "libggml-cuda.so"


def has_nvcc(machine):
    machine.tool("nvcc", "exit 0")


def has_gpus(machine, *capabilities):
    machine.tool("nvidia-smi", "; ".join(f"echo {each}" for each in capabilities))


def NoCompilerIsNamed(machine):
    has_gpus(machine, "9.0")
    assert "there is no nvcc" in machine.refusal("--cuda")


def NoGpuIsNamed(machine):
    has_nvcc(machine)
    assert "--cuda-arch 90" in machine.refusal("--cuda")
    machine.tool("nvidia-smi", "echo no devices were found; exit 6")
    assert "--cuda-arch 90" in machine.refusal("--cuda")


def TheGpusOfTheMachineAreCompiledFor(machine):
    has_nvcc(machine)
    has_gpus(machine, "9.0", "8.6", "9.0")
    done = machine.get("--cuda")
    assert done.returncode == 0
    assert "compute capability 86;90" in done.stdout and "compiling 5 %" in done.stdout
    assert machine.library.read_text() == "compiled\n"
    log = machine.log.read_text()
    assert "-DCMAKE_CUDA_ARCHITECTURES=86;90" in log and "-DGGML_CUDA=ON" in log
    # The toolkit's libraries are found where they are, and the plugin's own ones beside it.
    assert "-DCMAKE_INSTALL_RPATH=$ORIGIN;/opt/cuda/lib" in log
    assert "ggml-cuda" in log and "llama-server" not in log
    # What was needed to compile is gone.
    assert not (machine.folder / "build-llama-v0.5.0").exists()
    # Others than those of the machine.
    assert machine.get("--cuda-arch", "120a,90").returncode == 0
    assert "-DCMAKE_CUDA_ARCHITECTURES=120a;90" in machine.log.read_text()
    assert machine.get("--cuda-arch", "hopper").returncode == 2


def OnceIsEnough(machine):
    has_nvcc(machine)
    for arch in ("90", "90", "86,90", "90;86"):
        assert machine.get("--cuda", "--cuda-arch", arch).returncode == 0
    assert machine.log.read_text().count("ninja") == 2


def AFailedBuildLeavesNothingBehind(machine):
    has_nvcc(machine)
    machine.tool("ninja", 'echo " 3% of 9 Building"; echo "FAILED: fattn.o"; echo "no space"; exit 1')
    assert "no space" in machine.refusal("--cuda-arch", "90")
    machine.tool("cmake", """echo "Target links to:"; echo "    CUDA::cublas"; exit 1""")
    assert "the CUDA toolkit lacks cublas" in machine.refusal("--cuda-arch", "90")
    assert "there are no sources" in machine.refusal("--cuda-arch", "90", STEMMA_LLAMA_SOURCE="/no/such")
    # The next one goes on.
    machine.tool("cmake", CMAKE)
    machine.tool("ninja", NINJA)
    assert machine.get("--cuda-arch", "90").returncode == 0
    assert machine.library.exists()


def TwoAtOnceCompileOnce(machine):
    has_nvcc(machine)
    build = machine.folder / "build-llama-v0.5.0"
    build.mkdir()
    with open(build / "lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with subprocess.Popen(machine.command("--cuda-arch", "90"), env=machine.environment(), text=True,
                              stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as second:
            assert "waiting for another run" in second.stdout.readline()
            # The first one ends, and its folder goes with it.
            machine.library.write_text("compiled by the first\n")
            (machine.target / "cuda-arch").write_text("90\n")
            shutil.rmtree(build)
            fcntl.flock(lock, fcntl.LOCK_UN)
            assert second.wait() == 0
    assert machine.log.read_text() == "" and "first" in machine.library.read_text()


def TooLittleDiskIsNamed(machine):
    has_nvcc(machine)
    machine.tool("df", "echo head; echo /dev/x 1 1 77 1% /")
    why = machine.refusal("--cuda-arch", "90")
    assert "needs 4096 MiB" in why and "there are 77 MiB" in why


def TheServerIsCompiledBeside(machine):
    server = machine.folder / "server-llama-v0.5.0"
    assert machine.get("--server").returncode == 0
    assert sorted(path.name for path in server.iterdir()) == ["cuda-arch", "libggml-base.so", "libggml-cuda.so",
                                                               "llama-server"]
    assert "-DGGML_CUDA=OFF" in machine.log.read_text() and not machine.library.exists()
    # It is there.
    assert machine.get("--server").returncode == 0
    assert machine.log.read_text().count("ninja") == 1
    has_nvcc(machine)
    assert machine.get("--server", "--cuda-arch", "90").returncode == 0
    assert machine.library.exists() and machine.log.read_text().count("ninja") == 2
    assert machine.get("--server", "--cuda-arch", "90").returncode == 0
    assert machine.log.read_text().count("ninja") == 2


def TemplatesAreAddedToAFolderWithoutThem(machine):
    (machine.target / "templates").rmdir()
    # Sources that have none: nothing to do.
    assert machine.get().returncode == 0
    assert not (machine.target / "templates").exists()
    templates = machine.folder / "source" / "models" / "templates"
    templates.mkdir(parents=True)
    (templates / "some.jinja").write_text("{{ messages }}")
    assert machine.get().returncode == 0
    assert (machine.target / "templates" / "some.jinja").read_text() == "{{ messages }}"
    # Those that are there stay.
    (templates / "some.jinja").write_text("changed")
    assert machine.get().returncode == 0
    assert (machine.target / "templates" / "some.jinja").read_text() == "{{ messages }}"


def TheMachineDecidesWhatItCanUse(machine):
    assert "nvidia-smi finds none, and there is no Vulkan driver" in machine.refusal("--gpu")
    (machine.target / "lib" / "libggml-vulkan.so").write_text("fetched before\n")
    driver = machine.folder / "icd.json"
    driver.write_text("{}")
    assert machine.get("--gpu", VK_DRIVER_FILES=str(driver)).returncode == 0
    assert machine.log.read_text() == ""
    has_nvcc(machine)
    has_gpus(machine, "9.0")
    assert machine.get("--gpu", VK_DRIVER_FILES=str(driver)).returncode == 0
    assert "-DCMAKE_CUDA_ARCHITECTURES=90" in machine.log.read_text()


with tempfile.TemporaryDirectory() as place:
    globals()[sys.argv[1]](Machine(place))
