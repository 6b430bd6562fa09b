"""to_ctranslate2.py MODEL_DIR OUT_DIR: a BERT as CTranslate2 wants it, in fp32."""

import sys

import ctranslate2
import transformers

if __name__ == "__main__":
    # The converter asks for what transformers no longer writes, being the only kind it still has.
    transformers.BertConfig.position_embedding_type = "absolute"
    ctranslate2.converters.TransformersConverter(sys.argv[1]).convert(sys.argv[2])
