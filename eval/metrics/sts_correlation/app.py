"""The Space of the metric `sts_correlation`."""

import evaluate
from evaluate.utils import launch_gradio_widget

if __name__ == "__main__":
    launch_gradio_widget(evaluate.load("sts_correlation.py"))
