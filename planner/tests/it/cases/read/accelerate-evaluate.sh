#!/bin/bash
# An evaluation that accelerate starts, as LLaVA-NeXT has it.
accelerate launch --num_processes=8 -m lmms_eval --model llava_onevision --tasks ai2d,mmmu_val --batch_size 1
