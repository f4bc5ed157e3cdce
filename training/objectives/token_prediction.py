"""What causal, masked and translation language modeling share: the prediction of tokens."""

from dataclasses import replace

import torch

from tmde.training.objectives.base import ObjectiveOutput
from tmde.training.objectives.cross_entropy import autocast_operands, cross_entropy_sum
from tmde.training.objectives.encoded_batch import EncodedBatch
from tmde.training.objectives.masking import MaskingObjective


class TokenPrediction(MaskingObjective):
    """Base class of losses that predict tokens from the encoder's states.

    A subclass says in `mask` what the encoder reads and which tokens are predicted from which
    places.

    Args:
        weight: Factor of this loss in the total.

    Inputs: Outputs of the prediction head (tokens, d_model) at the places that predict, the output
        projection (vocab_size, d_model), and the predicted tokens (tokens,).
    """

    # Texts are read one by one, so rows of one language are enough.
    requirements = replace(MaskingObjective.requirements, several_languages=False)

    def compute(self, encoded: EncodedBatch) -> ObjectiveOutput:
        """Return the loss of the tokens that were chosen before the batch was encoded."""
        masked = encoded.masked
        assert masked is not None  # The requirements ask for it.
        states = encoded.token_states(masked.places)  # (tokens, d_model)
        return self.predict(encoded, states, masked.targets)

    def forward(
        self, hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor
    ) -> ObjectiveOutput:
        """Return the cross-entropy of the targets."""
        hidden, weight = autocast_operands(hidden, weight)
        loss = cross_entropy_sum(hidden, weight, targets)
        return ObjectiveOutput(loss, {"loss": loss.detach()})

    def predict(
        self, encoded: EncodedBatch, states: torch.Tensor, targets: torch.Tensor
    ) -> ObjectiveOutput:
        """Return the loss of targets (tokens,) that are predicted from states (tokens, d_model)."""
        output: ObjectiveOutput = self(encoded.head(states), encoded.output_projection, targets)
        return output
