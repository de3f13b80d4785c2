// Collectives between ranks of several machines, over one connection for each pair of ranks.
//
// A rank sends to all members and receives from all members at the same time, in one loop, and never
// waits while any socket can go on. To reduce, the data is divided into as many segments as there are
// members. Member i reduces segment i: a block of it as soon as all members have sent that block, in
// the group's order, and it sends the reduced block to all members at once. So every member gets the
// same bits. A rank sends as many bytes as in a ring of the members, in two hops instead of 2 (n - 1).
// Two members send each other everything, which is as many bytes in one hop.
//
// Sending a rank's own data depends on nothing. Receiving waits only for other members' own data. So no
// circle of waiting ranks is possible, whatever the sizes of the buffers.

#ifndef COLLECTIVES_NATIVE_NETWORK_H_
#define COLLECTIVES_NATIVE_NETWORK_H_

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "connections.h"
#include "reduce.h"
#include "transfer.h"

namespace collectives {

constexpr int64_t kStep = 1 << 18;        // the most bytes of a receive, and the bytes of staging memory
constexpr int64_t kSent = 1 << 20;        // the most bytes of a send
constexpr size_t kPieces = 256;           // the most pieces of a send
constexpr int64_t kAheadBytes = 1 << 18;  // bytes received from a member beyond those reduced
// Up to this number of bytes for all members, each member reduces everything: one hop, more bytes.
constexpr int64_t kSmall = 1 << 16;
constexpr int64_t kRoundedBlock = 1 << 12;  // elements that are reduced at once if they are rounded

// The data that this rank sends to one member, and receives from it, in one collective. Positions
// count bytes from the start of the collective.
struct Stream {
  const Connection* connection = nullptr;
  int64_t to_send = 0, ready = 0, sent = 0;  // the bytes before `ready` can be sent
  int64_t to_receive = 0, allowed = 0, received = 0;  // there is space for the bytes before `allowed`
  // Returns memory with the bytes from `begin` on: at least one byte, and none beyond `end`.
  std::function<Pieces(int64_t begin, int64_t end)> source;
  // Returns memory for the bytes from `begin` on: at least one byte, and none beyond `end`.
  std::function<Span(int64_t begin, int64_t end)> target;
  // Called after bytes were received into the memory of `target`; may be empty.
  std::function<void(int64_t begin, int64_t end, char* from)> took;

  bool CanSend() const { return sent < ready; }
  bool CanReceive() const { return received < allowed; }
  bool IsDone() const { return sent == to_send && received == to_receive; }

  // Sends and receives once. Returns whether bytes have moved.
  bool Advance() {
    int64_t moved = 0;
    if (CanSend()) {
      const int64_t bytes = connection->Send(source(sent, std::min(ready, sent + kSent)), ready - sent);
      sent += bytes;
      moved += bytes;
    }
    if (CanReceive()) {
      const Span span = target(received, std::min(allowed, received + kStep));
      const int64_t bytes = connection->Receive(span.base, span.bytes);
      if (bytes > 0 && took) took(received, received + bytes, span.base);
      received += bytes;
      moved += bytes;
    }
    return moved > 0;
  }
};

// The connections of this rank to the other ranks of a job.
class Network {
 public:
  Network(int rank, std::vector<Connection> connections)
      : rank_(rank), connections_(std::move(connections)), buffers_(connections_.size()) {
    staging_.reset(new char[kStep]);
  }

  int rank() const { return rank_; }
  const Connection& To(int rank) const { return connections_[rank]; }
  char* staging() const { return staging_.get(); }

  // The memory for bytes of a rank that are not reduced yet; a ring of kAheadBytes bytes.
  char* Ahead(int rank) {
    if (buffers_[rank] == nullptr) buffers_[rank].reset(new char[kAheadBytes]);
    return buffers_[rank].get();
  }

 private:
  int rank_;
  std::vector<Connection> connections_;
  std::vector<std::unique_ptr<char[]>> buffers_;
  std::unique_ptr<char[]> staging_;
};

// One collective of this rank in a group. The methods are those of `Collective`.
class NetworkCollective {
 public:
  NetworkCollective(Network& network, const std::vector<int>& members)
      : network_(network), members_(members), n_(static_cast<int>(members.size())) {
    while (members_[place_] != network_.rank()) ++place_;
    for (int k = 1; k < n_; ++k) {  // members send to different members first
      others_.push_back((place_ + k) % n_);
      streams_.emplace_back();
      streams_.back().connection = &network_.To(members_[others_.back()]);
    }
  }

  void Gather(const Runs& sent, const std::vector<Runs>& received) {
    for (size_t k = 0; k < others_.size(); ++k) Move(streams_[k], sent, received[others_[k]]);
    CopyBetween(sent, received[place_], false);
    Drive([] {});
  }

  void Exchange(const std::vector<Runs>& sent, const std::vector<Runs>& received) {
    for (size_t k = 0; k < others_.size(); ++k) {
      Move(streams_[k], sent[others_[k]], received[others_[k]]);
    }
    CopyBetween(sent[place_], received[place_], false);
    Drive([] {});
  }

  // Reduces the data that the members send to this rank, `bytes` bytes each.
  void ReduceScatter(const std::vector<Runs>& sent, char* out, int64_t bytes, int64_t itemsize,
                     Reduce reduce) {
    for (size_t k = 0; k < others_.size(); ++k) {
      Send(streams_[k], sent[others_[k]]);
      ReceiveAhead(streams_[k], others_[k], bytes);
    }
    Drive([&] {
      Reduced(bytes, bytes, itemsize, [&](int64_t begin, int64_t end) {
        const Span own = Packed(sent[place_], begin, end);
        reduce(Inputs(begin, own.base).data(), n_, out + begin, own.bytes / itemsize);
        return own.bytes;
      });
    });
  }

  // With `as_bfloat16`, arrays of float32 travel as bfloat16, unless they are small.
  void Allreduce(const Arrays& arrays, int64_t itemsize, Reduce reduce, bool as_bfloat16 = false) {
    const int64_t bytes = arrays.bytes();
    const bool is_small = n_ * bytes <= kSmall;
    const bool in_one_hop = is_small || n_ == 2;
    if (as_bfloat16 && !is_small) return AllreduceRounded(arrays, reduce);
    auto segment = [&](int member) { return in_one_hop ? Range{0, bytes} : Segment(bytes, member); };
    const Range own = segment(place_);
    for (size_t k = 0; k < others_.size(); ++k) {
      const Range part = segment(others_[k]);
      SendThenForward(streams_[k], arrays, part, in_one_hop ? Range{0, 0} : own);
      ReceiveAhead(streams_[k], others_[k], own.size());
      if (!in_one_hop) ReceiveResult(streams_[k], arrays, part);
    }
    Drive([&] {
      int64_t most = own.size();  // bytes that are overwritten have been sent
      for (const Stream& stream : streams_) most = in_one_hop ? std::min(most, stream.sent) : most;
      Reduced(own.size(), most, itemsize, [&](int64_t begin, int64_t end) {
        arrays.Each(own.begin + begin, own.begin + end,
                    [&](const Array& array, int64_t from, int64_t at, int64_t size) {
                      reduce(Inputs(at - own.begin, array.in + from).data(), n_, array.out + from,
                             size / itemsize);
                    });
        return end - begin;
      });
      if (in_one_hop) return;
      for (size_t k = 0; k < others_.size(); ++k) {
        streams_[k].ready = segment(others_[k]).size() + reduced_;
      }
    });
  }

 private:
  struct Range {
    int64_t begin, end;
    int64_t size() const { return end - begin; }
  };

  Range Segment(int64_t bytes, int member) const {
    const int64_t share = (bytes / n_ + kAlignment) / kAlignment * kAlignment;
    return {std::min(member * share, bytes), std::min((member + 1) * share, bytes)};
  }

  // An all-reduce of float32 whose data and results are rounded to bfloat16 on the way. Sums are
  // float32. A member rounds its own copy of a result, too, so that all members get the same bits.
  // Positions count bytes on the wire, two for each element.
  void AllreduceRounded(const Arrays& arrays, Reduce reduce) {
    const int64_t bytes = arrays.bytes();
    const Range own = Segment(bytes, place_);
    for (size_t k = 0; k < others_.size(); ++k) {
      const Range part = Segment(bytes, others_[k]);
      SendRounded(streams_[k], arrays, part, own);
      ReceiveAhead(streams_[k], others_[k], own.size() / 2);
      ReceiveRounded(streams_[k], others_[k], arrays, part, own.size() / 2);
    }
    Drive([&] {
      const int64_t size = own.size() / 2;
      Reduced(size, size, sizeof(BFloat16), [&](int64_t begin, int64_t end) {
        end = std::min(end, begin + kRoundedBlock * static_cast<int64_t>(sizeof(BFloat16)));
        ReduceRounded(arrays, own.begin, begin, end, reduce);
        return end - begin;
      });
      for (size_t k = 0; k < others_.size(); ++k) {
        streams_[k].ready = Segment(bytes, others_[k]).size() / 2 + reduced_;
        // The ring of a member has space for results once all of its data is reduced.
        const int64_t taken = std::max(streams_[k].received, size) & ~int64_t{1};
        streams_[k].allowed = reduced_ < size ? std::min(size, reduced_ + kAheadBytes)
                                              : std::min(streams_[k].to_receive, taken + kAheadBytes);
      }
    });
  }

  // Reduces bytes [begin, end) of this rank's segment, whose first float32 is at byte `start`.
  void ReduceRounded(const Arrays& arrays, int64_t start, int64_t begin, int64_t end, Reduce reduce) {
    const int64_t count = (end - begin) / static_cast<int64_t>(sizeof(BFloat16));
    std::vector<float> values(n_ * count), result(count);
    std::vector<const char*> inputs;
    for (int i = 0; i < n_; ++i) {
      float* to = &values[i * count];
      inputs.push_back(reinterpret_cast<const char*>(to));
      if (i == place_) continue;
      Widen(network_.Ahead(members_[i]) + begin % kAheadBytes, to, count);
    }
    const Range floats{start + 2 * begin, start + 2 * end};
    arrays.Each(floats.begin, floats.end, [&](const Array& array, int64_t from, int64_t at, int64_t size) {
      std::memcpy(const_cast<char*>(inputs[place_]) + (at - floats.begin), array.in + from, size);
    });
    reduce(inputs.data(), n_, reinterpret_cast<char*>(result.data()), count);
    for (float& value : result) value = static_cast<float>(BFloat16(value));
    Put(arrays, floats.begin, floats.end, result.data());
  }

  static void Widen(const char* from, float* to, int64_t count) {
    const auto* rounded = reinterpret_cast<const BFloat16*>(from);
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(rounded[i]);
  }

  // Writes a range of reduced arrays.
  static void Put(const Arrays& arrays, int64_t begin, int64_t end, const float* values) {
    arrays.Each(begin, end, [&](const Array& array, int64_t from, int64_t at, int64_t size) {
      std::memcpy(array.out + from, reinterpret_cast<const char*>(values) + (at - begin), size);
    });
  }

  // Like `SendThenForward`, rounded.
  void SendRounded(Stream& stream, const Arrays& arrays, Range own, Range reduced) {
    stream.ready = own.size() / 2;
    stream.to_send = own.size() / 2 + reduced.size() / 2;
    stream.source = [this, &arrays, own, reduced](int64_t begin, int64_t end) -> Pieces {
      const int64_t first = own.size() / 2;
      if (begin < first) {
        return {Rounded<false>(arrays, own.begin, begin, std::min(end, first))};
      }
      return {Rounded<true>(arrays, reduced.begin, begin - first, end - first)};
    };
  }

  // Returns the bytes [begin, end) of rounded arrays; the first float32 is at byte `start`.
  template <bool kOut>
  Span Rounded(const Arrays& arrays, int64_t start, int64_t begin, int64_t end) const {
    const int64_t odd = begin % 2, last = std::min(end, begin - odd + kStep);
    auto* to = reinterpret_cast<BFloat16*>(network_.staging());
    arrays.Each(start + 2 * (begin - odd), start + 2 * (last + last % 2),
                [&](const Array& array, int64_t from, int64_t, int64_t size) {
                  const auto* values =
                      reinterpret_cast<const float*>((kOut ? array.out : array.in) + from);
                  const int64_t count = size / static_cast<int64_t>(sizeof(float));
                  for (int64_t i = 0; i < count; ++i) *to++ = BFloat16(values[i]);
                });
    return {network_.staging() + odd, last - begin};
  }

  // Receives rounded results, after the `first` bytes that are to be reduced. An element may arrive in
  // two parts.
  void ReceiveRounded(Stream& stream, int member, const Arrays& arrays, Range part, int64_t first) {
    char* ahead = network_.Ahead(members_[member]);
    stream.to_receive += part.size() / 2;
    stream.target = [=](int64_t begin, int64_t end) {
      const int64_t at = begin % kAheadBytes;
      if (begin < first) end = std::min(end, first);
      return Span{ahead + at, std::min(end, begin - at + kAheadBytes) - begin};
    };
    stream.took = [=, &arrays](int64_t begin, int64_t end, char*) {
      if (begin < first) return;
      begin -= begin % 2, end -= end % 2;
      std::vector<float> values((end - begin) / 2);
      Widen(ahead + begin % kAheadBytes, values.data(), values.size());
      Put(arrays, part.begin + 2 * (begin - first), part.begin + 2 * (end - first), values.data());
    };
  }

  // Sends and receives until all streams are done. `progress` is called after each round.
  void Drive(const std::function<void()>& progress) {
    std::vector<pollfd> polled(streams_.size());
    std::vector<const Connection*> connections;
    for (const Stream& stream : streams_) connections.push_back(stream.connection);
    for (;;) {
      bool any_moved = false, all_done = true;
      for (Stream& stream : streams_) any_moved |= stream.Advance();
      progress();
      for (const Stream& stream : streams_) all_done &= stream.IsDone();
      if (all_done) return;
      if (any_moved) continue;
      for (size_t k = 0; k < streams_.size(); ++k) {
        const int events = (streams_[k].CanSend() ? POLLOUT : 0) | (streams_[k].CanReceive() ? POLLIN : 0);
        polled[k] = {connections[k]->file(), static_cast<short>(events), 0};
      }
      Poll(polled, connections);
    }
  }

  void Send(Stream& stream, const Runs& runs) {
    stream.to_send = stream.ready = runs.total();
    stream.source = [this, &runs](int64_t begin, int64_t end) -> Pieces { return {Packed(runs, begin, end)}; };
  }

  void Move(Stream& stream, const Runs& sent, const Runs& received) {
    Send(stream, sent);
    stream.to_receive = stream.allowed = received.total();
    stream.target = [this, &received](int64_t begin, int64_t end) {
      return HasPieces(received) ? Span{network_.staging(), end - begin}
                                 : Span{received.base + begin, end - begin};
    };
    if (!HasPieces(received)) return;
    stream.took = [&received](int64_t begin, int64_t end, char* from) {
      Transfer<false>(received, begin, end, from);
    };
  }

  // Sends a range of the arrays that are to be reduced, then a range of reduced arrays, which is not
  // ready yet.
  void SendThenForward(Stream& stream, const Arrays& arrays, Range own, Range reduced) {
    stream.ready = own.size();
    stream.to_send = own.size() + reduced.size();
    stream.source = [&arrays, own, reduced](int64_t begin, int64_t end) {
      const int64_t first = own.size();
      if (begin < first) {
        return AllPieces<false>(arrays, own.begin + begin, own.begin + std::min(end, first));
      }
      return AllPieces<true>(arrays, reduced.begin + begin - first, reduced.begin + end - first);
    };
  }

  // Receives bytes that are to be reduced.
  void ReceiveAhead(Stream& stream, int member, int64_t bytes) {
    char* ahead = network_.Ahead(members_[member]);
    stream.to_receive = bytes;
    stream.allowed = std::min(bytes, kAheadBytes);
    stream.target = [ahead, bytes](int64_t begin, int64_t end) {
      const int64_t at = begin % kAheadBytes;
      return Span{ahead + at, std::min({end, bytes, begin - at + kAheadBytes}) - begin};
    };
  }

  // Receives a reduced range of arrays after the bytes that are to be reduced.
  void ReceiveResult(Stream& stream, const Arrays& arrays, Range part) {
    const int64_t first = stream.to_receive;
    stream.to_receive += part.size();
    if (first == 0) stream.allowed = stream.to_receive;
    stream.target = [=, &arrays, ahead = stream.target](int64_t begin, int64_t end) {
      if (begin < first) return ahead(begin, end);
      return Piece<true>(arrays, part.begin + begin - first, part.begin + end - first);
    };
  }

  // Reduces, block by block, the bytes that all members have sent, at most `most` bytes of `bytes`.
  // `reduce` returns the number of bytes that it has reduced.
  void Reduced(int64_t bytes, int64_t most, int64_t itemsize,
               const std::function<int64_t(int64_t begin, int64_t end)>& reduce) {
    for (const Stream& stream : streams_) most = std::min(most, stream.received);
    most -= most % itemsize;
    while (reduced_ < most) {
      const int64_t end_of_ring = (reduced_ / kAheadBytes + 1) * kAheadBytes;
      reduced_ += reduce(reduced_, std::min(most, end_of_ring));
    }
    for (Stream& stream : streams_) {
      const int64_t allowed = reduced_ + kAheadBytes;
      stream.allowed = allowed < bytes ? allowed : stream.to_receive;
    }
  }

  // The addresses of the members' data at a position, this rank's own being `own`.
  std::vector<const char*> Inputs(int64_t at, const char* own) const {
    std::vector<const char*> inputs(n_);
    inputs[place_] = own;
    for (int other : others_) inputs[other] = network_.Ahead(members_[other]) + at % kAheadBytes;
    return inputs;
  }

  static bool HasPieces(const Runs& runs) { return runs.count > 1 && runs.stride != runs.bytes; }

  // Returns bytes of runs in one piece; they are copied if they lie in several.
  Span Packed(const Runs& runs, int64_t begin, int64_t end) const {
    if (!HasPieces(runs)) return {runs.base + begin, end - begin};
    end = std::min(end, begin + kStep);
    Transfer<true>(runs, begin, end, network_.staging());
    return {network_.staging(), end - begin};
  }

  // Returns the first bytes of a range of arrays, those to be reduced or (kOut) the reduced ones.
  template <bool kOut>
  static Span Piece(const Arrays& arrays, int64_t begin, int64_t end) {
    Span piece;
    arrays.Each(begin, end, [&](const Array& array, int64_t from, int64_t, int64_t size) {
      if (piece.base == nullptr) piece = {(kOut ? array.out : const_cast<char*>(array.in)) + from, size};
    });
    return piece;
  }

  // Returns the pieces of a range of arrays, the first `kPieces` of them.
  template <bool kOut>
  static Pieces AllPieces(const Arrays& arrays, int64_t begin, int64_t end) {
    Pieces pieces;
    arrays.Each(begin, end, [&](const Array& array, int64_t from, int64_t, int64_t size) {
      if (pieces.size() == kPieces) return;
      pieces.push_back({(kOut ? array.out : const_cast<char*>(array.in)) + from, size});
    });
    return pieces;
  }

  Network& network_;
  const std::vector<int>& members_;
  const int n_;
  int place_ = 0;
  std::vector<int> others_;      // positions of the other members, in the order of `streams_`
  std::vector<Stream> streams_;
  int64_t reduced_ = 0;          // bytes of this rank's segment that are reduced
};

}  // namespace collectives

#endif  // COLLECTIVES_NATIVE_NETWORK_H_
