"""`python -m manciple.controller_kit MODULE:CLASS`."""

import sys

from manciple.controller_kit.command import main

sys.exit(main())
