"""The weight regularization of Yu et al. (2018), their alternative to the similarity loss."""

import torch

from modeling_tmde import TmdeError
from tmde.training.objectives.base import BatchSizes, Objective, ObjectiveOutput, Requirements
from tmde.training.objectives.encoded_batch import EncodedBatch


class WeightRegularization(Objective):
    """L2 penalty on the encoder: the sum of the squares of its weights, `sum_W ||W||_F^2`.

    Yu et al. (2018, section 2.2) replace the similarity loss "with an L2 norm on the encoder
    weights". The norm is squared here, because the gradient of a plain norm does not shrink with
    the weights. Weights are all trained parameters of two or more dimensions. FSDP is not
    supported.

    Args:
        weight: The factor of this loss in the total. The penalty does not depend on the batch size.

    Inputs: a list of the encoder's parameters.

    Raises:
        TmdeError: No matrix of the encoder is trained.

    Example:
        ```python
        from tmde import BagConfig, BagModel, WeightRegularization

        model = BagModel(BagConfig(vocab_size=1000, d_model=64))
        penalty = WeightRegularization(weight=1e-5)
        loss = penalty.weight * penalty(list(model.parameters())).loss
        ```
    """

    requirements = Requirements(embeddings="none", several_languages=False)

    def __init__(self, weight: float = 1e-5):
        super().__init__(weight)

    def count(self, sizes: BatchSizes) -> int:
        """Return one term per micro-batch, whatever its size."""
        return 1

    def compute(self, encoded: EncodedBatch) -> ObjectiveOutput:
        """Return the penalty on the encoder's trained parameters."""
        parameters = encoded.encoder.parameters()
        output: ObjectiveOutput = self([weight for weight in parameters if weight.requires_grad])
        return output

    def forward(self, parameters: list[torch.Tensor]) -> ObjectiveOutput:
        """Return the sum of the squares of all matrices."""
        matrices = [parameter for parameter in parameters if parameter.dim() >= 2]
        if not matrices:
            raise TmdeError(
                "objectives.weight_regularization: found no trained matrix in the encoder; "
                "remove the objective, or train the encoder (freeze, encoder_learning_rate)"
            )
        squares = [matrix.float().square().sum() for matrix in matrices]
        loss = torch.stack(squares).sum()
        return ObjectiveOutput(loss, {"loss": loss.detach()})
