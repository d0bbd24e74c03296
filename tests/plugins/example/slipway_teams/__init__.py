from launcher.plugins import Command, Product

PRODUCT = Product(
    title="Our platform",
    package="slipway_teams",
    commands={"teams": Command("Count the runs of each team.", ("launcher teams -o json",))},
)
