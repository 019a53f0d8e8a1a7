#!/bin/bash
accelerate launch --config_file accelerate-number.yaml src/train.py llama-factory-qlora.yaml
