"""The Space of the metric `mining_f1`."""

import evaluate
from evaluate.utils import launch_gradio_widget

if __name__ == "__main__":
    launch_gradio_widget(evaluate.load("mining_f1.py"))
