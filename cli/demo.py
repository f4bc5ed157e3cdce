"""`tmde demo`: a local web page to search a collection in any language and to see it as a map."""

from typing import Annotated, Any, Literal

from typer import Argument, Option

from tmde.cli import options as common


@common.with_options(loading=common.MODEL_OPTIONS)
def demo(
    model: Annotated[
        str | None, Argument(help="Folder or Hub id. Default: an index's own, or that of tmde.")
    ] = None,
    collection: Annotated[
        str | None,
        Argument(help="File or folder of documents, - for stdin, or index. Default: passages."),
    ] = None,
    format: common.FormatOption = None,
    field: common.FieldOption = None,
    id_field: common.IdFieldOption = None,
    language_field: common.LanguageFieldOption = None,
    label_field: Annotated[
        list[str] | None, Option(help="Field that colors the map; repeatable.")
    ] = None,
    points: Annotated[
        int, Option(min=1, help="Documents on the map at most; more are sampled.")
    ] = 5000,
    projection: Annotated[
        Literal["tsne", "pca"] | None, Option(help="Default: pca beyond 5,000 points.")
    ] = None,
    host: Annotated[
        str, Option(help="Where to listen; 0.0.0.0 shows the documents to the network.")
    ] = "127.0.0.1",
    port: Annotated[
        int | None, Option(min=1, max=65535, help="Default: the first free one from 7860.")
    ] = None,
    browser: Annotated[bool, Option(help="Open a browser, if there is a screen.")] = True,
    *,
    loading: dict[str, Any],
) -> None:
    """Open a local web page: search a collection in any language, and see it as a map.

    Works offline; needs the packages of the extra `demo`. Ctrl-C ends it. A file is indexed in a
    temporary folder with all its fields, as by `tmde index`.

        tmde demo

        tmde demo news.jsonl --label-field topic

        tmde demo path/to/model news.jsonl

        tmde demo news.index
    """
    from tmde.cli.run_demo import DemoJob, is_collection, run_demo

    if collection is None and model is not None and is_collection(model):
        collection = model
        model = None
    job = DemoJob(
        model=model,
        collection=collection,
        loading=loading,
        format=format,
        field=field,
        id_field=id_field,
        language_field=language_field,
        label_fields=label_field or [],
        points=points,
        projection=projection,
        host=host,
        port=port,
        opens_browser=browser,
    )
    run_demo(job)
