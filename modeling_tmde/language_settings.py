"""The languages of a config, which all models of this package name in the same way."""

from transformers import PreTrainedConfig


def list_languages(config: PreTrainedConfig) -> None:
    """Makes `languages` and `pivot_languages` lists, as they come back from JSON."""
    config.languages = list(config.languages)
    config.pivot_languages = list(config.pivot_languages)


def check_languages(config: PreTrainedConfig) -> None:
    """
    Raises:
        ValueError: If a language is named twice, or a pivot language is not among the languages.
    """
    if len(set(config.languages)) != len(config.languages):
        raise ValueError(f"languages={config.languages} names a language twice")
    unknown = [language for language in config.pivot_languages if language not in config.languages]
    if unknown:
        raise ValueError(f"pivot_languages {unknown} are not among languages={config.languages}")


__all__ = ["check_languages", "list_languages"]
