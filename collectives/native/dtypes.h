// Finds the reduction of a TensorFlow dtype. The other headers here do without TensorFlow.

#ifndef COLLECTIVES_NATIVE_DTYPES_H_
#define COLLECTIVES_NATIVE_DTYPES_H_

#include <string>

#include "reduce.h"
#include "tensorflow/core/framework/types.h"

namespace collectives {

// Returns the function for a dtype and a reducer, nullptr if the dtype has no such reduction.
inline Reduce FindReduce(tensorflow::DataType dtype, const std::string& reducer) {
  using namespace tensorflow;  // the names of dtypes
  switch (dtype) {
    case DT_HALF: return FindReduce<Float16>(reducer);
    case DT_BFLOAT16: return FindReduce<BFloat16>(reducer);
    case DT_FLOAT: return FindReduce<float>(reducer);
    case DT_DOUBLE: return FindReduce<double>(reducer);
    case DT_INT8: return FindReduce<int8_t>(reducer);
    case DT_INT16: return FindReduce<int16_t>(reducer);
    case DT_INT32: return FindReduce<int32_t>(reducer);
    case DT_INT64: return FindReduce<int64_t>(reducer);
    case DT_UINT8: return FindReduce<uint8_t>(reducer);
    case DT_UINT16: return FindReduce<uint16_t>(reducer);
    case DT_UINT32: return FindReduce<uint32_t>(reducer);
    case DT_UINT64: return FindReduce<uint64_t>(reducer);
    case DT_COMPLEX64: return FindReduce<std::complex<float>>(reducer);
    case DT_COMPLEX128: return FindReduce<std::complex<double>>(reducer);
    case DT_BOOL:  // in bytes, sum and max are a logical or, min and prod a logical and
      return FindReduce<uint8_t>(reducer == "sum" ? "max" : reducer == "prod" ? "min" : reducer);
    default: return nullptr;
  }
}

}  // namespace collectives

#endif  // COLLECTIVES_NATIVE_DTYPES_H_
