"""Commands whose options are declared once: as the fields of a dataclass.

```python
@dataclass(kw_only=True)
class CleanOptions(ModelOptions):
    sources: Annotated[list[str], Argument(help="Parallel text.")]
    output: Annotated[Path, Option("--output", "-o", help="File to write.")]
    min_probability: Annotated[float, Option(help="Remove rows below it.")] = 0.1


@command(CleanOptions)
def clean(options: CleanOptions) -> None:
    clean_files(options.sources, options.output, **keywords(options, CleanOptions))
```

Options that several commands share are base classes.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

Options = TypeVar("Options")


def command(options_class: type[Options]) -> Callable[[Callable[[Options], None]], Callable]:
    """Make a function of options a command of typer.

    Args:
        options_class: A dataclass, with `kw_only=True`. The annotation of each field is what typer
            expects of a parameter.

    Returns:
        A decorator. What it returns has a parameter for each field, and the function's docstring.
    """
    parameters = []
    for field in dataclasses.fields(options_class):  # type: ignore[arg-type]
        default = field.default
        if default is dataclasses.MISSING:
            default = inspect.Parameter.empty
        parameters.append(
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=default,
                annotation=field.type,
            )
        )

    def decorate(run: Callable[[Options], None]) -> Callable:
        @functools.wraps(run)
        def call(**values: Any) -> None:
            run(options_class(**values))

        # `inspect` reads this attribute, which typeshed does not know.
        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return call

    return decorate


def keywords(options: Any, group: type, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the options of a group by name, as the keywords of a function.

    Args:
        options: The options of a command.
        group: The command's own dataclass, without those of its bases, or one of its bases.
        without: Fields to leave out.

    Returns:
        The options that the user has set, and those with a default of their own: neither None nor
        the absent flag of something that is off by default.
    """
    inherited: set[str] = set()
    for base in group.__mro__[1:]:
        inherited.update(getattr(base, "__dataclass_fields__", {}))
    values = {}
    for field in dataclasses.fields(group):
        value = getattr(options, field.name)
        is_absent_flag = value is False and field.default is False
        if field.name in inherited or field.name in without or value is None or is_absent_flag:
            continue
        values[field.name] = value
    return values
