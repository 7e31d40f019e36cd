"""A task in the browser, at its own pace."""
