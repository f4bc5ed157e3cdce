"""Model and dataset cards, filled in from what a run and its evaluations recorded.

```python
from tmde.hub_cards import model_card, write_model_card

print(model_card("runs/mine", repo_id="user/mine", license="apache-2.0"))
write_model_card("runs/mine", results=["results/#mine"])  # README.md; edited text is kept
```
"""

from .card_text import is_edited, merge_card
from .dataset_cards import dataset_card
from .licenses import check_license, describe_licenses, inherited_license, license_chain
from .model_cards import model_card, write_model_card
from .model_files import STALE_MODEL, stage_model
from .provenance import describe_origins, describe_sources, licensed_sources
from .run_records import public_recipe

__all__ = [
    "STALE_MODEL",
    "check_license",
    "dataset_card",
    "describe_licenses",
    "describe_origins",
    "describe_sources",
    "inherited_license",
    "is_edited",
    "license_chain",
    "licensed_sources",
    "merge_card",
    "model_card",
    "public_recipe",
    "stage_model",
    "write_model_card",
]
