"""The weight regularization of paper 001, its alternative to the similarity loss."""

import torch

from tmde.training.objectives.base import ObjectiveOutput, ParameterObjective


class WeightRegularization(ParameterObjective):
    """
    L2 penalty on the encoder (paper 001, section 2.2: "replacing similarity loss term with an L2 norm on the encoder
    weights"): the sum of the squares of its weights, `sum_W ||W||_F^2`.

    Squares, because the gradient of a norm has the same length however small the weights are. Weights are all
    parameters of two or more dimensions: the matrices of the layers and the token vectors; biases and the gains of
    norms, of one, are left alone. What is frozen is not part of it.

    Unlike the optimizer's `weight_decay` it leaves the decoder free, and under Adam its gradient is scaled with all
    others.

    For weights that every process holds whole: under FSDP each would see its share.

    Args:
        weight: Factor of the penalty, which does not depend on the size of a batch.

    Inputs: the encoder's parameters, a list.

    Example:

    ```python
    >>> penalty = WeightRegularization(weight=1e-5)
    >>> loss = penalty.weight * penalty(list(model.model.parameters())).loss
    ```
    """

    def __init__(self, weight: float = 1e-5):
        super().__init__(weight)

    def forward(self, parameters: list[torch.Tensor]) -> ObjectiveOutput:
        weights = [parameter for parameter in parameters if parameter.dim() >= 2]
        loss = torch.stack([weight.float().square().sum() for weight in weights]).sum()
        return ObjectiveOutput(loss, {"loss": loss.detach()})
