"""The product `image`: the image that all pods run."""

from __future__ import annotations

from launcher.plugins import Command, Product

PRODUCT = Product(
    title="Image",
    package="launcher.products.image.cli",
    commands={
        "image": Command(
            "Build the image that all pods run.",
            (
                "launcher image build --accelerator tpu --repository registry.example.com/slipway --push "
                "--write image.yaml",
            ),
            "docs/how-to/build-the-image.md",
        ),
    },
    api={
        **dict.fromkeys(("build_image", "image_commands", "plan_image"), "launcher.products.image.api"),
    },
    instead_of={
        **dict.fromkeys(("build", "push"), "launcher image build"),
    },
)
