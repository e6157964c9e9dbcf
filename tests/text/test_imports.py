"""What the daemon imports of this package brings no heavy library with it."""

from __future__ import annotations

import subprocess
import sys


def test_the_daemons_side_is_light() -> None:
    code = (
        "import sys\n"
        "import pagedd.text.tokenizer, pagedd.text.stream, pagedd.text.stops, pagedd.text.chat\n"
        "heavy = {'torch', 'transformers', 'numpy', 'gguf', 'huggingface_hub', 'pagedd.models'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
