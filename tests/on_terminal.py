"""Run a command with its standard input as its session's own terminal: `on_terminal.py COMMAND…`.

A program of its own, and no preexec_fn: a fork that runs Python code also runs gRPC's handlers for forks, and in a
process that has served gRPC those can wait for ever.
"""

import fcntl
import os
import signal
import sys
import termios

fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # so that Ctrl-C becomes a signal
signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's background job, as the tests may be, ignores it
os.execvp(sys.argv[1], sys.argv[1:])
