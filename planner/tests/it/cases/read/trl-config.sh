#!/bin/bash
# TRL's own parser reads a file of arguments; options count over it.
accelerate launch --config_file trl-zero3.yaml scripts/sft.py \
    --config trl-recipe.yaml --gradient_accumulation_steps 8
