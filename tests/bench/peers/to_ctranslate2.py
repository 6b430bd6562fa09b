"""to_ctranslate2.py MODEL_DIR OUT_DIR: a BERT as CTranslate2 wants it, in fp32."""

import sys

import ctranslate2

if __name__ == "__main__":
    ctranslate2.converters.TransformersConverter(sys.argv[1]).convert(sys.argv[2])
