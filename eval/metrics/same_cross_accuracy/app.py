"""The Space of the metric `same_cross_accuracy`."""

import evaluate
from evaluate.utils import launch_gradio_widget

if __name__ == "__main__":
    launch_gradio_widget(evaluate.load("same_cross_accuracy.py"))
