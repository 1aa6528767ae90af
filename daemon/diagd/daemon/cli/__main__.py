"""`python -m diagd.daemon.cli`."""

import sys

from diagd.daemon.cli.main import main

sys.exit(main())
