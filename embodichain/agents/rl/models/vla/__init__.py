"""Vision-language-action models, and the policy around them."""
