"""The Space of the metric `translation_retrieval`."""

import evaluate
from evaluate.utils import launch_gradio_widget

if __name__ == "__main__":
    launch_gradio_widget(evaluate.load("translation_retrieval.py"))
