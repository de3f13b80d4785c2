// The carriers of one rank's collectives: a window within a machine, connections between machines.

#ifndef TESTS_COLLECTIVES_NATIVE_DRIVER_CARRIERS_H_
#define TESTS_COLLECTIVES_NATIVE_DRIVER_CARRIERS_H_

#include <utility>
#include <vector>

#include "direct.h"
#include "network.h"
#include "transfer.h"
#include "window.h"

namespace driver {

using collectives::Runs;
using Members = std::vector<int>;

// Runs collectives of float32. All members of a collective pass the same numbers of bytes.
class Carrier {
 public:
  virtual ~Carrier() = default;
  virtual void Allreduce(const Members& members, const collectives::Arrays& arrays) = 0;
  virtual void ReduceScatter(const Members& members, const std::vector<Runs>& sent, char* out,
                             int64_t bytes) = 0;
  // `run_bytes` is the length of the runs that are received.
  virtual void Gather(const Members& members, const Runs& sent, const std::vector<Runs>& received,
                      int64_t run_bytes) = 0;
  // No member sends a member more than `most` bytes, in runs of `run_bytes`.
  virtual void Exchange(const Members& members, const std::vector<Runs>& sent,
                        const std::vector<Runs>& received, int64_t most, int64_t run_bytes) = 0;

 protected:
  const collectives::Reduce sum_ = collectives::FindReduce<float>("sum");
};

class ThroughWindow : public Carrier {
 public:
  explicit ThroughWindow(collectives::Window& window) : window_(window) {}

  void Allreduce(const Members& members, const collectives::Arrays& arrays) override {
    collectives::Collective(window_, window_.Find(members), arrays.bytes()).Allreduce(arrays, 4, sum_);
  }

  void ReduceScatter(const Members& members, const std::vector<Runs>& sent, char* out,
                     int64_t bytes) override {
    collectives::Collective(window_, window_.Find(members), bytes)
        .ReduceScatter(sent, out, bytes, 4, sum_);
  }

  void Gather(const Members& members, const Runs& sent, const std::vector<Runs>& received,
              int64_t run_bytes) override {
    auto& group = window_.Find(members);
    const int64_t n = group.size(), bytes = sent.total();
    if (collectives::DirectCollective::Pays(window_, n, bytes, run_bytes, n * bytes)) {
      collectives::DirectCollective(window_, group).Gather(sent, received);
    } else {
      collectives::Collective(window_, group, n * bytes).Gather(sent, received);
    }
  }

  void Exchange(const Members& members, const std::vector<Runs>& sent,
                const std::vector<Runs>& received, int64_t most, int64_t run_bytes) override {
    auto& group = window_.Find(members);
    const int n = group.size();
    const int64_t written = window_.shares_cores() ? 0 : n * most;
    if (collectives::DirectCollective::Pays(window_, n, most, run_bytes, written)) {
      collectives::DirectCollective(window_, group).Exchange(sent, received);
    } else {
      collectives::Collective(window_, group, n * most).Exchange(sent, received, most);
    }
  }

 private:
  collectives::Window& window_;
};

class ThroughNetwork : public Carrier {
 public:
  // With `rounds`, sums travel as bfloat16. The whole numbers of the driver are exact in it.
  ThroughNetwork(int rank, std::vector<collectives::Connection> connections, bool rounds)
      : network_(rank, std::move(connections)), rounds_(rounds) {}

  void Allreduce(const Members& members, const collectives::Arrays& arrays) override {
    collectives::NetworkCollective(network_, members).Allreduce(arrays, 4, sum_, rounds_);
  }

  void ReduceScatter(const Members& members, const std::vector<Runs>& sent, char* out,
                     int64_t bytes) override {
    collectives::NetworkCollective(network_, members).ReduceScatter(sent, out, bytes, 4, sum_);
  }

  void Gather(const Members& members, const Runs& sent, const std::vector<Runs>& received,
              int64_t) override {
    collectives::NetworkCollective(network_, members).Gather(sent, received);
  }

  void Exchange(const Members& members, const std::vector<Runs>& sent,
                const std::vector<Runs>& received, int64_t, int64_t) override {
    collectives::NetworkCollective(network_, members).Exchange(sent, received);
  }

 private:
  collectives::Network network_;
  const bool rounds_;
};

}  // namespace driver

#endif  // TESTS_COLLECTIVES_NATIVE_DRIVER_CARRIERS_H_
