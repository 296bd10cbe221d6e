# The machine of a measurement, and the memory that a process takes.
import datetime
import os
import pathlib
import platform
import shlex
import subprocess
import sys


def _output(*command, cwd=None):
    """What a command prints, or nothing if there is no such command or it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, cwd=cwd)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def _field(path, name):
    """A `name: value` line of a file of the kernel."""
    try:
        lines = pathlib.Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line.split(":", 1)[1].strip() for line in lines if line.split(":")[0].strip() == name), "")


def memory_bytes():
    """The memory of this machine."""
    kib = _field("/proc/meminfo", "MemTotal").split()
    return int(kib[0]) * 1024 if kib else 8 << 30


def gpus():
    """A line for each GPU that NVIDIA's driver shows."""
    lines = _output("nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader").splitlines()
    return [" with driver ".join(line.rsplit(", ", 1)) for line in lines]


def describe(stemma, model):
    """Lines that say when, where, with what and how this was measured."""
    root = pathlib.Path(__file__).resolve().parent
    commit = _output("git", "rev-parse", "--short=12", "HEAD", cwd=root) or "unknown"
    if _output("git", "status", "--porcelain", "--untracked-files=no", cwd=root):
        commit += " with changes"
    version = _output(stemma, "--version").splitlines()
    return [
        f"date     {datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M} UTC",
        f"command  {shlex.join([os.path.relpath(sys.argv[0]), *sys.argv[1:]])}",
        f"commit   {commit}",
        f"program  {version[0] if version else stemma}",
        f"model    {pathlib.Path(model).name}, {os.path.getsize(model) / 1e9:.2f} GB",
        f"machine  {_field('/proc/cpuinfo', 'model name') or platform.machine()}, {os.cpu_count()} cores, "
        f"{memory_bytes() / 2**30:.0f} GiB, {platform.system()} {platform.release()}",
        f"GPU      {'; '.join(gpus()) or 'none that nvidia-smi shows'}",
    ]


def gpu_mib(pid):
    """(MiB of GPU memory, whose): of this process, or of all where the driver does not tell them apart, or None."""
    for line in _output("nvidia-smi", "--query-compute-apps=pid,used_memory",
                        "--format=csv,noheader,nounits").splitlines():
        number, _, used = line.partition(",")
        if number.strip() == str(pid) and used.strip().isdigit():
            return int(used), "this process"
    total = _output("nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits").splitlines()
    return (int(total[0]), "all processes") if total and total[0].strip().isdigit() else (None, "")


def process_mib(pid):
    """{name: MiB} of a process: resident, locked and pinned memory."""
    names = {"resident": "VmRSS", "locked": "VmLck", "pinned": "VmPin"}
    found = {key: _field(f"/proc/{pid}/status", name).split() for key, name in names.items()}
    return {key: int(words[0]) / 1024 for key, words in found.items() if words}
