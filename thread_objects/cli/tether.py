"""Run a command for as long as standard input stays open.

Whatever ends the parent, even kill -9, closes the pipe; the command then gets SIGTERM, and SIGKILL when it
outlives its grace. So nothing that `threads dev`, `threads demo` or a test starts can be left behind. Run as a
plain script by path, since it needs nothing but the standard library.
"""

import os
import signal
import subprocess
import sys
import threading


def _end_with_the_pipe(child: "subprocess.Popen[bytes]", grace_s: float) -> None:
    while os.read(0, 4096):
        pass
    child.terminate()
    try:
        child.wait(grace_s)
    except subprocess.TimeoutExpired:
        child.kill()


def main(argv: list[str]) -> int:
    """`tether.py GRACE_SECONDS COMMAND...`: tells the command's pid on stdout, then ends with its exit code."""
    grace_s, command = float(argv[0]), argv[1:]
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=2)  # noqa: S603  # composed by the parent
    signal.signal(signal.SIGTERM, lambda _signal, _frame: child.terminate())
    os.write(1, f"{child.pid}\n".encode())
    os.close(1)
    threading.Thread(target=_end_with_the_pipe, args=(child, grace_s), daemon=True).start()
    code = child.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
