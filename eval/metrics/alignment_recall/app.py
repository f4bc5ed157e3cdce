"""The Space of the metric `alignment_recall`."""

import evaluate
from evaluate.utils import launch_gradio_widget

if __name__ == "__main__":
    launch_gradio_widget(evaluate.load("alignment_recall.py"))
