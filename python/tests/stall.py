"""Runs a program on a disk that can be made to hang.

    python3 stall.py PROGRAM ARGUMENTS...

Reads, writes and syncs of files by this program and its threads go through this process (seccomp's
user notifications). While the program has asked for a stall, none of them returns: what a dying
disk or a lost mount does. io_uring is refused to it, so that its files are read and written by
system calls. In the program,

    import stall
    stall.hang()      # From now on file I/O hangs.
    stall.hung()      # How many calls hang now.
    stall.go_on()     # All go on, and what follows too.

An import reads files, so import before you hang. Linux on x86-64 only: why_not() says why it does
not work.
"""

import ctypes
import os
import pathlib
import platform
import select
import signal
import socket
import struct
import subprocess
import sys

_SECCOMP, _SET_FILTER, _LISTENER = 317, 1, 8
_NO_NEW_PRIVS = 38
_ALLOW, _NOTIFY, _NO_SYSCALL = 0x7FFF0000, 0x7FC00000, 0x00050000 | 38
_URING_SETUP = 425
# pread64, pwrite64, fsync, fdatasync, fallocate, preadv, pwritev, preadv2, pwritev2
_FILE_IO = (17, 18, 74, 75, 285, 295, 296, 327, 328)
_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_CONTINUE = 1
_VARIABLE = "STEMMA_TEST_STALL"

_libc = ctypes.CDLL(None, use_errno=True)


class _Filter(ctypes.Structure):
    _fields_ = [("size", ctypes.c_ushort), ("code", ctypes.c_void_p)]


def _program():
    def step(code, yes, no, value):
        return struct.pack("HBBI", code, yes, no, value)

    load, equal, leave = 0x20, 0x15, 0x06
    steps = [step(load, 0, 0, 0)]
    steps += [step(equal, 0, 1, _URING_SETUP), step(leave, 0, 0, _NO_SYSCALL)]
    for number in _FILE_IO:
        steps += [step(equal, 0, 1, number), step(leave, 0, 0, _NOTIFY)]
    return b"".join([*steps, step(leave, 0, 0, _ALLOW)])


def _listener():
    """Puts this process under the filter. Returns the descriptor that tells of its calls."""
    code = _program()
    memory = ctypes.create_string_buffer(code, len(code))
    given = _Filter(len(code) // 8, ctypes.addressof(memory))
    if _libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    file = _libc.syscall(_SECCOMP, _SET_FILTER, _LISTENER, ctypes.byref(given))
    if file < 0:
        raise OSError(ctypes.get_errno(), "seccomp")
    return file


def why_not():
    """Why programs cannot be made to hang on this machine; None: they can."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return "only on Linux on x86-64"
    child = os.fork()
    if child == 0:
        try:
            _listener()
            os._exit(0)
        except OSError as error:
            os._exit(error.errno or 1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return None if code == 0 else f"seccomp's notifications: {os.strerror(code)}"


# ---- In the program
# --------------------------------------------------------------------------------


def _ask(what):
    control = socket.socket(fileno=os.dup(int(os.environ[_VARIABLE])))
    with control:
        control.send(what)
        return int(control.recv(16))


def hang():
    """From now on reads and writes of files hang."""
    _ask(b"h")


def hung():
    """How many hang now."""
    return _ask(b"?")


def go_on():
    """All go on."""
    _ask(b"g")


def run(module, function, *arguments, timeout=300):
    """Calls a function of a test's module in a program under stall.py. Returns what it printed;
    raises if it failed."""
    script = (
        f"import sys; sys.path[:0] = {[os.path.dirname(module), os.path.dirname(__file__)]!r}\n"
        f"import {pathlib.Path(module).stem} as test\n"
        f"test.{function.__name__}(*sys.argv[1:])\n"
    )
    program = [sys.executable, "-W", "ignore", "-c", script, *map(str, arguments)]
    command = [sys.executable, "-W", "ignore", __file__, *program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    if done.returncode != 0:
        raise AssertionError(f"the program under stall.py ended with {done.returncode}: {done.stderr}")
    return done.stdout


# ---- The supervisor
# --------------------------------------------------------------------------------


class _Supervisor:
    """Answers the filter's questions: at once, or not before it is told to."""

    def __init__(self, calls, control):
        self.calls, self.control = calls, control
        self.hangs = False
        self.held = []

    def run(self):
        poll = select.poll()
        poll.register(self.calls, select.POLLIN)
        poll.register(self.control, select.POLLIN)
        while True:
            for file, events in poll.poll():
                if file == self.control.fileno():
                    asked = self.control.recv(1)
                    if not asked:
                        return
                    self.answer(asked)
                elif events & select.POLLIN:
                    self.take()
                else:  # The program has ended.
                    return

    def take(self):
        notice = bytearray(80)
        memory = (ctypes.c_char * 80).from_buffer(notice)
        if _libc.ioctl(self.calls, ctypes.c_ulong(_RECEIVE), memory) != 0:
            return  # The thread was killed meanwhile.
        (number,) = struct.unpack_from("Q", notice)
        if self.hangs:
            self.held.append(number)
        else:
            self.let(number)

    def let(self, number):
        reply = ctypes.create_string_buffer(struct.pack("QqiI", number, 0, 0, _CONTINUE), 24)
        _libc.ioctl(self.calls, ctypes.c_ulong(_SEND), reply)

    def answer(self, asked):
        if asked == b"h":
            self.hangs = True
        elif asked == b"g":
            self.hangs = False
            for number in self.held:
                self.let(number)
            self.held.clear()
        self.control.send(str(len(self.held)).encode())


def main(command):
    if not command:
        raise SystemExit(__doc__)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    child = os.fork()
    if child == 0:
        ours.close()
        try:
            calls = _listener()
            socket.send_fds(theirs, [b"f"], [calls])
            os.close(calls)
            os.set_inheritable(theirs.fileno(), True)
            os.environ[_VARIABLE] = str(theirs.fileno())
            os.execvp(command[0], command)
        except OSError as error:
            print(f"stall: {error}", file=sys.stderr)
        os._exit(127)
    theirs.close()
    _, files, _, _ = socket.recv_fds(ours, 1, 1)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGTERM))
    for calls in files:
        _Supervisor(calls, ours).run()
        os.close(calls)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    raise SystemExit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main(sys.argv[1:])
