"""Documents, many and long: represented without their language, aligned, mined for parallel text, searched."""
