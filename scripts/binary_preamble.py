"""Begins ``dist/pagedd``: runs in the Python that runs the file, before it goes on in its own.

``pagedd.interpreter`` reads the variable: that Python has torch, which the file does not hold.
"""

import os
import sys

os.environ["__PAGEDD_PYTHON__"] = sys.executable
