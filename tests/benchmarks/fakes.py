"""A model for tests of benchmarks, which computes nothing."""


class FakeSystem:
    """What `tmde.eval.systems.System` needs beside vectors.

    Args:
        name: Its name in the table.
        prompt: The text before every text.
        document_prompt: The text before every document.
    """

    dense = True
    texts = 0
    truncated = 0
    seconds = 0.0
    cpu_seconds = 0.0

    def __init__(self, name, prompt, document_prompt):
        self.name = name
        self.fingerprint = name
        self.prompts = (prompt, document_prompt)

    def begin(self):
        pass

    def describe(self):
        return {}
