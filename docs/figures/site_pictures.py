"""Take pictures of the documentation site: light, dark, and as wide as a phone.

```bash
mkdocs build --strict --site-dir SITE
python docs/figures/site_pictures.py SITE
```

It needs the extra `dev` (playwright) and a Chromium. Without arguments after the folder, it writes
`site_*.png` beside itself; `--all FOLDER` takes every page in every way, to look at.
"""

import argparse
import io
import shutil
from collections.abc import Iterator
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

# name of the picture, page, colors, width and height in pixels
PICTURES = [
    ("start_light", "index.html", "light", 1280, 800),
    ("start_dark", "index.html", "dark", 1280, 800),
    ("start_phone", "index.html", "light", 390, 844),
    ("guide_light", "guides/search.html", "light", 1280, 800),
    ("api_dark", "reference/api/tmde.html", "dark", 1280, 800),
    ("results_phone", "results/index.html", "dark", 390, 844),
]
COLORS = 64


def main() -> None:
    """Take the pictures that the repository shows, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("site", type=Path, help="the folder that mkdocs built")
    parser.add_argument("--all", type=Path, metavar="FOLDER", help="every page, in every way")
    arguments = parser.parse_args()
    pictures = PICTURES
    folder = Path(__file__).parent
    if arguments.all is not None:
        pictures = list(every_page(arguments.site))
        folder = arguments.all
        folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=find_chromium(), args=["--no-sandbox", "--allow-file-access-from-files"]
        )
        for name, address, colors, width, height in pictures:
            page = browser.new_page(
                viewport={"width": width, "height": height}, color_scheme=colors
            )
            page.set_default_timeout(120_000)  # Long pages take their time on a busy machine.
            page.goto((arguments.site / address).resolve().as_uri())
            page.wait_for_timeout(300)  # The theme chooses its colors by a script.
            report_overflow(page, address, width)
            write_picture(page.screenshot(), folder / f"site_{name}.png")
            page.close()
        browser.close()


def every_page(site: Path) -> Iterator[tuple[str, str, str, int, int]]:
    """Yield all pages: light, dark, and on a phone."""
    for path in sorted(site.rglob("*.html")):
        address = path.relative_to(site).as_posix()
        if address == "404.html":
            continue  # Its links begin at the root of a host, so a file shows no styles.
        name = address.removesuffix(".html").replace("/", "_")
        yield f"{name}_light", address, "light", 1280, 1600
        yield f"{name}_dark", address, "dark", 1280, 1000
        yield f"{name}_phone", address, "light", 390, 1600


def find_chromium() -> str | None:
    """Return an installed browser; None for the one that playwright has downloaded."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        path = shutil.which(name)
        if path is not None:
            return path
    return None


def report_overflow(page: Page, address: str, width: int) -> None:
    """Print the pages that are wider than the screen."""
    page_width = page.evaluate("document.documentElement.scrollWidth")
    if page_width > width:
        print(f"{address}: {page_width} pixels wide on a screen of {width}")


def write_picture(png: bytes, path: Path) -> None:
    """Write a picture with few colors, which makes it small."""
    image = Image.open(io.BytesIO(png)).convert("RGB")
    image.quantize(COLORS).save(path, optimize=True)


if __name__ == "__main__":
    main()
