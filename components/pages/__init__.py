"""The style that the pages of the server and of the report share: `templates/base.css`."""
