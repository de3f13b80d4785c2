// A collective on tensors, without their shapes: its checks, its results, and the work that it gives a
// window or a network.

#ifndef COLLECTIVES_NATIVE_DEFINITION_H_
#define COLLECTIVES_NATIVE_DEFINITION_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "communication.h"
#include "direct.h"
#include "dtypes.h"
#include "network.h"
#include "transfer.h"

namespace collectives {

using Dims = std::vector<int64_t>;

inline int64_t Product(const Dims& dims, size_t begin, size_t end) {
  return std::accumulate(dims.begin() + begin, dims.begin() + end, int64_t{1}, std::multiplies<>());
}

// A collective without the shape of its tensors. The fields are attributes of the operator.
struct Definition {
  std::string kind, reducer, fill;
  bool as_bfloat16 = false;  // whether an all-reduce across machines sends float32 as bfloat16
  tensorflow::DataType dtype;
  std::vector<int> members;
  int place = 0;
  int split_dim = 0, join_dim = 0;
  Dims sent, received;  // of an exchange: for each member the first row and the one after the last
  int64_t rows = 0, most_rows = 0, extent = 0;

  int64_t itemsize() const { return tensorflow::DataTypeSize(dtype); }
  int64_t size() const { return static_cast<int64_t>(members.size()); }
  bool splits() const { return kind == "reduce_scatter" || kind == "alltoall"; }
  bool exchanges() const { return kind == "exchange" || kind == "exchange_sum"; }

  // Returns the error of an input with these dimensions, or an empty string.
  std::string Error(const Dims& dims) const {
    if (exchanges() && dims[split_dim] != rows) {
      return "the input of an exchange has the rows for which its windows are made. Got " +
             std::to_string(dims[split_dim]) + " rows for " + std::to_string(rows) + ".";
    }
    if (!splits() || dims[split_dim] % size() == 0) return "";
    return "the size of a dimension that is split is a multiple of the number of ranks. Got size " +
           std::to_string(dims[split_dim]) + " of dimension " + std::to_string(split_dim) +
           " for " + std::to_string(size()) + " ranks: pad it.";
  }

  Dims Result(Dims dims) const {
    if (splits()) dims[split_dim] /= size();
    if (kind == "allgather" || kind == "alltoall") dims[join_dim] *= size();
    if (exchanges()) dims[split_dim] = extent;
    return dims;
  }

  int64_t RowBytes(const Dims& dims) const {
    return Product(dims, split_dim + 1, dims.size()) * itemsize();
  }

  // The bytes of the temporary buffer, which receives the rows that are summed.
  int64_t ScratchBytes(const Dims& dims) const {
    if (kind != "exchange_sum") return 0;
    int64_t rows = 0;
    for (int64_t i = 0; i < size(); ++i) rows += received[2 * i + 1] - received[2 * i];
    return rows * Product(dims, 0, split_dim) * RowBytes(dims);
  }

  // A carrier is a `Window` or a `Network`.
  template <typename Carrier>
  void Run(Carrier& carrier, const Dims& dims, char* in, char* out, char* scratch) const;
  template <typename Carrier>
  void Allreduce(Carrier& carrier, const Arrays& arrays) const;

 private:
  // Returns the shards, along a dimension, of an array that begins at `base`.
  std::vector<Runs> Shards(char* base, const Dims& shard, int dim) const {
    const int64_t bytes = Product(shard, dim, shard.size()) * itemsize();
    std::vector<Runs> shards;
    for (int64_t i = 0; i < size(); ++i) {
      shards.push_back({base + i * bytes, Product(shard, 0, dim), size() * bytes, bytes});
    }
    return shards;
  }

  template <typename Carrier>
  void Exchange(Carrier& carrier, const Dims& dims, char* in, char* out, char* scratch) const;
  void Collect(Window& window, const Runs& sent, const std::vector<Runs>& received,
               int64_t result_bytes) const;
  void Collect(Network& network, const Runs& sent, const std::vector<Runs>& received,
               int64_t result_bytes) const;
  // Each member sends each other member at most `most` bytes, in runs of about `run_bytes`.
  void Swap(Window& window, const std::vector<Runs>& sent, const std::vector<Runs>& received,
            int64_t most, int64_t run_bytes, int64_t result_bytes) const;
  void Swap(Network& network, const std::vector<Runs>& sent, const std::vector<Runs>& received,
            int64_t most, int64_t run_bytes, int64_t result_bytes) const;
};

// Returns a collective of the members. `result_bytes` is the size of this member's result.
inline Collective Begin(Window& window, const std::vector<int>& members, int64_t result_bytes) {
  return Collective(window, window.Find(members), result_bytes);
}
inline NetworkCollective Begin(Network& network, const std::vector<int>& members, int64_t) {
  return NetworkCollective(network, members);
}

template <typename Carrier>
void Definition::Run(Carrier& carrier, const Dims& dims, char* in, char* out, char* scratch) const {
  if (exchanges()) return Exchange(carrier, dims, in, out, scratch);
  const int64_t bytes = Product(dims, 0, dims.size()) * itemsize();
  if (bytes == 0) return;
  if (kind == "allreduce") {
    Arrays arrays;
    arrays.Add({in, out, bytes});
    return Allreduce(carrier, arrays);
  }
  const int64_t result_bytes = Product(Result(dims), 0, dims.size()) * itemsize();
  Dims shard = dims;
  if (splits()) shard[split_dim] /= size();
  if (kind == "reduce_scatter") {
    const auto sent = Shards(in, shard, split_dim);
    Begin(carrier, members, result_bytes)
        .ReduceScatter(sent, out, bytes / size(), itemsize(), FindReduce(dtype, reducer));
    return;
  }
  const auto received = Shards(out, shard, join_dim);
  if (kind == "allgather") {
    return Collect(carrier, Runs{in, 1, bytes, bytes}, received, result_bytes);
  }
  const auto sent = Shards(in, shard, split_dim);
  Swap(carrier, sent, received, bytes / size(), std::min(sent[0].bytes, received[0].bytes),
       result_bytes);
}

inline void Definition::Collect(Window& window, const Runs& sent, const std::vector<Runs>& received,
                         int64_t result_bytes) const {
  if (DirectCollective::Pays(window, size(), sent.total(), received[0].bytes, result_bytes)) {
    DirectCollective(window, window.Find(members)).Gather(sent, received);
  } else {
    Begin(window, members, result_bytes).Gather(sent, received);
  }
}

inline void Definition::Collect(Network& network, const Runs& sent, const std::vector<Runs>& received,
                         int64_t result_bytes) const {
  Begin(network, members, result_bytes).Gather(sent, received);
}

inline void Definition::Swap(Window& window, const std::vector<Runs>& sent,
                       const std::vector<Runs>& received, int64_t most, int64_t run_bytes,
                       int64_t result_bytes) const {
  Group& group = window.Find(members);
  // Ranks that share cores would wait for each other chunk by chunk.
  const int64_t written = window.shares_cores() ? 0 : result_bytes;
  if (DirectCollective::Pays(window, size(), most, run_bytes, written)) {
    DirectCollective(window, group).Exchange(sent, received);
  } else {
    Collective(window, group, result_bytes).Exchange(sent, received, most);
  }
}

inline void Definition::Swap(Network& network, const std::vector<Runs>& sent,
                      const std::vector<Runs>& received, int64_t, int64_t,
                      int64_t result_bytes) const {
  Begin(network, members, result_bytes).Exchange(sent, received);
}

template <typename Carrier>
void Definition::Allreduce(Carrier& carrier, const Arrays& arrays) const {
  if (arrays.bytes() == 0) return;
  const Reduce reduce = FindReduce(dtype, reducer);
  if constexpr (std::is_same_v<Carrier, Network>) {
    NetworkCollective(carrier, members).Allreduce(arrays, itemsize(), reduce, as_bfloat16);
  } else {
    Begin(carrier, members, arrays.bytes()).Allreduce(arrays, itemsize(), reduce);
  }
}

template <typename Carrier>
void Definition::Exchange(Carrier& carrier, const Dims& dims, char* in, char* out,
                          char* scratch) const {
  const int64_t runs = Product(dims, 0, split_dim), row = RowBytes(dims);
  const int64_t stride = dims[split_dim] * row;
  const Runs result{out, runs, extent * row, extent * row};
  auto rows = [&](const Dims& of, const Runs& whole, int64_t i) {
    return Runs{whole.base + of[2 * i] * row, whole.count, whole.stride,
                (of[2 * i + 1] - of[2 * i]) * row};
  };
  const bool adds = kind == "exchange_sum";
  std::vector<Runs> to(size()), from(size());
  std::vector<Rows> blocks;
  for (int64_t i = 0; i < size(); ++i) {
    const Runs mine = rows(sent, {in, runs, stride, stride}, i);
    const Runs theirs = rows(received, result, i);
    if (i != place) {
      to[i] = mine;
      from[i] = adds ? Runs{scratch, runs, theirs.bytes, theirs.bytes} : theirs;
      scratch += adds ? theirs.total() : 0;
    } else if (!adds) {
      CopyRuns(theirs.base, theirs.stride, mine.base, mine.stride, mine.bytes, runs, false);
    }
    blocks.push_back({i != place ? from[i] : mine, received[2 * i], received[2 * i + 1]});
  }
  if (!adds) {  // fill the rows beyond the ends of the tensor
    int64_t first = extent, last = 0;
    for (int64_t i = 0; i < size(); ++i) {
      if (received[2 * i] == received[2 * i + 1]) continue;
      first = std::min(first, received[2 * i]);
      last = std::max(last, received[2 * i + 1]);
    }
    last = std::max(first, last);
    const int64_t item = itemsize();
    for (int64_t run = 0; run < runs; ++run) {
      for (const auto& [begin, end] : {std::pair(int64_t{0}, first), std::pair(last, extent)}) {
        char* at = out + run * extent * row + begin * row;
        for (int64_t i = 0; i < (end - begin) * row; i += item) std::memcpy(at + i, fill.data(), item);
      }
    }
  }
  if (most_rows * runs * row > 0) {
    const int64_t most = most_rows * runs * row;
    Swap(carrier, to, from, most, most_rows * row, most);
  }
  if (adds) AddUp(blocks, result, row, itemsize(), FindReduce(dtype, "sum"));
}

using Communication = CommunicationIn<Window>;
using NetworkCommunication = CommunicationIn<Network>;

}  // namespace collectives

#endif  // COLLECTIVES_NATIVE_DEFINITION_H_
