"""What a training's own scalars say: rules over series, each told apart from the healthy runs that look like it."""
