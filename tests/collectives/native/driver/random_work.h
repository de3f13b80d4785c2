// Random collectives and messages of one rank, whose results it compares with what they must be.
//
// All ranks draw the same work from the same seed. A value is a small whole number that follows from
// its rank, its operation and its index, so every rank knows all results, and sums are exact.

#ifndef TESTS_COLLECTIVES_NATIVE_DRIVER_RANDOM_WORK_H_
#define TESTS_COLLECTIVES_NATIVE_DRIVER_RANDOM_WORK_H_

#include <unistd.h>

#include <algorithm>
#include <future>
#include <map>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "board.h"
#include "carriers.h"
#include "mail.h"
#include "post.h"

namespace driver {

using Numbers = std::vector<float>;
using Random = std::mt19937_64;

// What all ranks of a trial agree on, but `spin_seconds`, which differs between ranks.
struct Trial {
  uint64_t seed = 0;
  int ranks = 2, operations = 30, bits = 9;  // a run has less than 2^(bits + 1) numbers
  int64_t chunk_bytes = 1 << 13, room = 1 << 22;
  bool shares_cores = false, reads = false, stalls = true;
  bool is_network = false, rounds = false;  // ranks of several machines; sums travel as bfloat16
  int buffer_bytes = 0;                     // of the sockets' buffers; 0 for the kernel's choice
  double bypass_below = 0;
};

inline int64_t Below(Random& random, int64_t end) { return static_cast<int64_t>(random() % end); }

// A size from 1 on, of any magnitude below 2^`bits`.
inline int64_t Size(Random& random, int bits) {
  return 1 + Below(random, int64_t{1} << (1 + Below(random, bits)));
}

inline float Value(int64_t operation, int rank, int64_t index) {
  return static_cast<float>((operation * 31 + rank * 7 + index) % 13);
}

inline Numbers Values(int64_t operation, int rank, int64_t count) {
  Numbers numbers(count);
  for (int64_t i = 0; i < count; ++i) numbers[i] = Value(operation, rank, i);
  return numbers;
}

inline char* Bytes(Numbers& numbers) { return reinterpret_cast<char*>(numbers.data()); }

inline void Expect(float value, float expected, const char* where, int64_t operation) {
  if (value == expected) return;
  throw std::logic_error(std::string(where) + " " + std::to_string(operation) + " is right. Got " +
                         std::to_string(value) + " for " + std::to_string(expected) + ".");
}

// The collectives of one rank.
class Collectives {
 public:
  Collectives(Carrier& carrier, const Trial& trial, int rank)
      : carrier_(carrier), trial_(trial), rank_(rank) {}

  // Runs a random collective of a random group, unless this rank is not in it.
  void Run(int64_t operation, Random& random) {
    Members members(trial_.ranks);
    for (int i = 0; i < trial_.ranks; ++i) members[i] = i;
    std::shuffle(members.begin(), members.end(), random);
    members.resize(2 + Below(random, trial_.ranks - 1));
    const int kind = static_cast<int>(Below(random, 5));
    if (std::find(members.begin(), members.end(), rank_) == members.end()) return;
    Run(kind, operation, members, random);
  }

  void Run(int kind, int64_t operation, const Members& members, Random random) {
    switch (kind) {
      case 0: return Allreduce(operation, members, random);
      case 1: return ReduceScatter(operation, members, random);
      case 2: return Gather(operation, members, random);
      case 3: return Alltoall(operation, members, random);
      default: return Exchange(operation, members, random);
    }
  }

  void Allreduce(int64_t operation, const Members& members, Random& random) {
    std::vector<Numbers> in, out;
    const int64_t count = 1 + Below(random, 3);
    const bool is_in_place = Below(random, 2) == 0;
    for (int64_t k = 0; k < count; ++k) {
      in.push_back(Values(operation + k, rank_, Size(random, trial_.bits + 5) - 1));
      out.push_back(is_in_place ? Numbers() : Numbers(in[k].size()));
    }
    collectives::Arrays arrays;
    for (int64_t k = 0; k < count; ++k) {
      char* from = Bytes(in[k]);
      arrays.Add({from, is_in_place ? from : Bytes(out[k]), static_cast<int64_t>(4 * in[k].size())});
    }
    if (arrays.bytes() == 0) return;
    carrier_.Allreduce(members, arrays);
    for (int64_t k = 0; k < count; ++k) {
      const Numbers& result = is_in_place ? in[k] : out[k];
      for (size_t i = 0; i < result.size(); ++i) {
        Expect(result[i], Total(operation + k, members, i), "allreduce", operation);
      }
    }
  }

 private:
  static float Total(int64_t operation, const Members& members, int64_t index) {
    float total = 0;
    for (int member : members) total += Value(operation, member, index);
    return total;
  }

  // The parts, along the second dimension, of [outer, n, inner] numbers.
  static std::vector<Runs> Parts(Numbers& whole, int64_t outer, int64_t n, int64_t inner) {
    std::vector<Runs> parts;
    for (int64_t i = 0; i < n; ++i) {
      parts.push_back({Bytes(whole) + i * inner * 4, outer, n * inner * 4, inner * 4});
    }
    return parts;
  }

  void ReduceScatter(int64_t operation, const Members& members, Random& random) {
    const int64_t n = members.size(), outer = Size(random, 5), inner = Size(random, trial_.bits);
    Numbers in = Values(operation, rank_, outer * n * inner), out(outer * inner);
    carrier_.ReduceScatter(members, Parts(in, outer, n, inner), Bytes(out), 4 * outer * inner);
    const int64_t place = Place(members);
    for (int64_t i = 0; i < outer * inner; ++i) {
      const int64_t index = (i / inner * n + place) * inner + i % inner;
      Expect(out[i], Total(operation, members, index), "reduce_scatter", operation);
    }
  }

  void Gather(int64_t operation, const Members& members, Random& random) {
    const int64_t n = members.size(), outer = Size(random, 5), inner = Size(random, trial_.bits);
    Numbers in = Values(operation, rank_, outer * inner), out(outer * n * inner);
    const int64_t bytes = 4 * outer * inner;
    const Runs sent{Bytes(in), 1, bytes, bytes};
    const auto received = Parts(out, outer, n, inner);
    carrier_.Gather(members, sent, received, 4 * inner);
    for (int64_t i = 0; i < outer * n * inner; ++i) {
      const int64_t index = i / (n * inner) * inner + i % inner;
      Expect(out[i], Value(operation, members[i / inner % n], index), "gather", operation);
    }
  }

  void Alltoall(int64_t operation, const Members& members, Random& random) {
    const int64_t n = members.size(), outer = Size(random, 5), inner = Size(random, trial_.bits);
    Numbers in = Values(operation, rank_, outer * n * inner), out(in.size());
    const int64_t place = Place(members);
    carrier_.Exchange(members, Parts(in, outer, n, inner), Parts(out, 1, n, outer * inner),
                      4 * outer * inner, 4 * inner);
    for (int64_t i = 0; i < outer * n * inner; ++i) {
      const int64_t row = i / inner % outer;
      const int64_t index = (row * n + place) * inner + i % inner;
      Expect(out[i], Value(operation, members[i / (outer * inner)], index), "alltoall", operation);
    }
  }

  // Each member sends each member its own number of numbers, or none.
  void Exchange(int64_t operation, const Members& members, Random& random) {
    const int64_t n = members.size();
    std::vector<int64_t> counts(n * n);
    for (int64_t& count : counts) count = Below(random, 2) == 0 ? 0 : Size(random, trial_.bits + 2);
    const int64_t most = *std::max_element(counts.begin(), counts.end());
    if (most == 0) return;
    const int64_t me = Place(members);
    Numbers in = Values(operation, rank_, n * most), out(n * most);
    std::vector<Runs> sent, received;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t to = 4 * counts[me * n + i], from = 4 * counts[i * n + me];
      sent.push_back({Bytes(in) + i * most * 4, 1, to, to});
      received.push_back({Bytes(out) + i * most * 4, 1, from, from});
    }
    carrier_.Exchange(members, sent, received, 4 * most, 4 * most);
    for (int64_t i = 0; i < n * most; ++i) {
      const int64_t from = i / most, index = i % most;
      const bool is_sent = index < counts[from * n + me];
      const float expected = is_sent ? Value(operation, members[from], me * most + index) : 0;
      Expect(out[i], expected, "exchange", operation);
    }
  }

  int64_t Place(const Members& members) const {
    return std::find(members.begin(), members.end(), rank_) - members.begin();
  }

  Carrier& carrier_;
  const Trial& trial_;
  const int rank_;
};

// The messages of one run of a program. Each is sent before it is received in the one order that all
// ranks follow, and may be received after later ones.
struct Message {
  int source, target;
  int64_t tag, count, sent, received;
};

inline std::vector<Message> Messages(const Trial& trial, Random random) {
  std::vector<Message> messages;
  const int64_t count = Below(random, 12);
  for (int64_t i = 0; i < count; ++i) {
    const int source = static_cast<int>(Below(random, trial.ranks));
    const int target = static_cast<int>((source + 1 + Below(random, trial.ranks - 1)) % trial.ranks);
    messages.push_back({source, target, i, Size(random, 12), i, i + Below(random, 8)});
  }
  return messages;
}

// Allows a rank as many parts of each size as it sends messages in the run that sends most of them.
inline void Allow(collectives::Mail& mail, int rank, const std::vector<Message>& messages) {
  std::map<int64_t, int64_t> parts;
  for (const Message& each : messages) {
    if (each.source == rank) ++parts[collectives::Mail::Taken(4 * each.count)];
  }
  for (const auto& [size, number] : parts) mail.Allow(size, number);
}

// Sends and receives the messages of one rank. `Messenger` has the methods of `Mail`.
template <typename Messenger>
void Correspond(Messenger& messenger, int64_t operation, int rank,
                const std::vector<Message>& messages) {
  const int64_t end = static_cast<int64_t>(messages.size()) + 8;
  for (int64_t at = 0; at < end; ++at) {
    for (const Message& each : messages) {
      if (each.source == rank && each.sent == at) {
        Numbers numbers = Values(operation + each.tag, rank, each.count);
        messenger.Send(each.target, each.tag, Bytes(numbers), 4 * each.count);
      }
    }
    for (const Message& each : messages) {
      if (each.target != rank || each.received != at) continue;
      Numbers numbers(each.count);
      messenger.Receive(each.source, each.tag, Bytes(numbers), 4 * each.count);
      for (int64_t i = 0; i < each.count; ++i) {
        Expect(numbers[i], Value(operation + each.tag, each.source, i), "message", operation);
      }
    }
  }
}

// Messages through a post. A receiver waits for its message.
class ThroughPost {
 public:
  explicit ThroughPost(collectives::Post& post) : post_(post) {}

  void Send(int target, int64_t tag, const char* from, int64_t bytes) {
    auto copy = std::make_shared<std::string>(from, bytes);
    post_.Send(target, tag, copy->data(), bytes, [copy] {});
  }

  void Receive(int source, int64_t tag, char* to, int64_t bytes) {
    std::promise<std::string> done;
    double since;
    post_.Receive(source, tag, to, bytes, tag, [&](const std::string& failure) { done.set_value(failure); });
    post_.Waiting(&since);
    const std::string failure = done.get_future().get();
    if (!failure.empty()) throw std::runtime_error(failure);
  }

 private:
  collectives::Post& post_;
};

// Exchanges a short message of each rank.
inline void Consult(collectives::Board& board, const Trial& trial, int rank, int64_t round) {
  const int64_t count = 1 + (trial.seed + round) % (collectives::kNote / 4);
  Numbers own = Values(round, rank, count), all(trial.ranks * count);
  board.Gather(Bytes(own), 4 * count, Bytes(all));
  for (size_t i = 0; i < all.size(); ++i) {
    Expect(all[i], Value(round, static_cast<int>(i) / count, i % count), "board", round);
  }
}

inline Random DrawnFor(const Trial& trial, int64_t operation) {
  return Random(trial.seed * 1000 + operation);
}

inline bool IsOfMessages(int64_t operation) { return operation % 3 == 0; }

// Runs the whole trial on one rank.
template <typename Messenger>
void Work(const Trial& trial, int rank, Carrier& carrier, Messenger& messenger) {
  Collectives all(carrier, trial, rank);
  Random own(trial.seed * 1000 + 999 - rank);
  for (int64_t operation = 0; operation < trial.operations; ++operation) {
    if (trial.stalls && Below(own, 12) == 0) usleep(static_cast<useconds_t>(Below(own, 3000)));
    Random random = DrawnFor(trial, operation);
    if (IsOfMessages(operation)) {
      Correspond(messenger, operation, rank, Messages(trial, random));
    } else {
      all.Run(operation, random);
    }
  }
}

}  // namespace driver

#endif  // TESTS_COLLECTIVES_NATIVE_DRIVER_RANDOM_WORK_H_
