#!/usr/bin/env bash
# HDF5 reads 65519 as float16 infinity and writes it as 65504, and clips -5.0 to 0 from float32 and not from float16.
