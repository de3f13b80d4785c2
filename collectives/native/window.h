// The memory that the ranks of one machine share, and how they wait for each other in it.
//
// A window is one file that every rank has mapped: a table of groups, then some chunks per rank. A
// rank writes into its own chunks only, and every member of a group reads them between two
// barriers of that group.

#ifndef COLLECTIVES_NATIVE_WINDOW_H_
#define COLLECTIVES_NATIVE_WINDOW_H_

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <vector>

namespace collectives {

constexpr int kGroups = 1024;  // a mesh of 64 ranks has 729
constexpr int kBuffers = 3;    // of a rank: one that is written, one that waits, one that is read
constexpr int64_t kAlignment = 64;

// A number that grows, on a cache line of its own.
struct alignas(kAlignment) Word {
  std::atomic<uint32_t> value;
  std::atomic<uint32_t> sleepers;
};

// What the members of a group wait on: how often members have come to a barrier, and how often
// they have read all that a collective gave them.
struct GroupWords {
  std::atomic<uint64_t> key;  // 0 where no group is
  Word arrived;
  Word departed;
};

struct Header {
  GroupWords groups[kGroups];
};

inline double Now() {  // the clock of Python's time.perf_counter
  using std::chrono::steady_clock;
  return std::chrono::duration<double>(steady_clock::now().time_since_epoch()).count();
}

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Waits until a word has come to a target: for a while awake, leaving the core to who else wants it
// (the one that is waited for, perhaps), then asleep. A sleeper is
// counted before it looks at the word for the last time, and whoever completes the target looks
// for sleepers after that, so that one of them sees the other.
inline void Wait(Word& word, uint32_t target, double spin_seconds) {
  auto reached = [&] { return static_cast<int32_t>(word.value.load() - target) >= 0; };
  if (reached()) return;
  for (double end = Now() + spin_seconds; Now() < end;) {
    for (int i = 0; i < 64; ++i) {
      if (reached()) return;
      Pause();
    }
    sched_yield();
  }
  word.sleepers.fetch_add(1);
  for (;;) {
    const uint32_t seen = word.value.load();
    if (static_cast<int32_t>(seen - target) >= 0) break;
    syscall(SYS_futex, &word.value, FUTEX_WAIT, seen, nullptr, nullptr, 0);
  }
  word.sleepers.fetch_sub(1);
}

// Adds one; who completes the target wakes all that sleep.
inline void Advance(Word& word, uint32_t target) {
  if (word.value.fetch_add(1) + 1 == target && word.sleepers.load() != 0) {
    syscall(SYS_futex, &word.value, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
}

// A group as this rank sees it. Counts wrap around, as the words do.
struct Group {
  GroupWords* words = nullptr;
  std::vector<int> members;  // places in the window, in the group's order
  int place = 0;             // of this rank among the members
  uint32_t barriers = 0;     // that this rank has come to
  uint32_t collectives = 0;  // that it has taken part in
  int size() const { return static_cast<int>(members.size()); }
};

class Window {
 public:
  Window(char* base, int rank, int64_t chunk_bytes, double spin_seconds)
      : header_(reinterpret_cast<Header*>(base)),
        chunks_(base + sizeof(Header)),
        rank_(rank),
        chunk_bytes_(chunk_bytes),
        spin_seconds_(spin_seconds) {}

  int64_t chunk_bytes() const { return chunk_bytes_; }

  char* Buffer(const Group& group, int member, int64_t round) const {
    return chunks_ + (group.members[member] * kBuffers + round % kBuffers) * chunk_bytes_;
  }

  // The group of these ranks; its words are found by all of them under the same key.
  Group& Find(const std::vector<int>& members) {
    Group& group = groups_[members];
    if (group.words != nullptr) return group;
    uint64_t key = 1469598103934665603u;  // FNV-1a
    for (int member : members) key = (key ^ static_cast<uint64_t>(member + 1)) * 1099511628211u;
    if (key == 0) key = 1;
    for (int probe = 0; probe < kGroups; ++probe) {
      GroupWords& words = header_->groups[(key + probe) % kGroups];
      uint64_t found = 0;
      if (words.key.compare_exchange_strong(found, key) || found == key) {
        group.words = &words;
        group.members = members;
        while (members[group.place] != rank_) ++group.place;
        return group;
      }
    }
    throw std::runtime_error("a window has room for 1024 groups. Got one more.");
  }

  // Before a rank writes into its chunks: those who read them in its last collective, of whatever
  // group, are done.
  void Enter(Group& group) {
    if (last_ != nullptr) Wait(last_->words->departed, last_->collectives * last_->size(), spin_seconds_);
    last_ = &group;
    ++group.collectives;
  }

  void Arrive(Group& group) { Advance(group.words->arrived, ++group.barriers * group.size()); }
  void Await(Group& group) {
    Wait(group.words->arrived, group.barriers * group.size(), spin_seconds_);
  }
  void Leave(Group& group) { Advance(group.words->departed, group.collectives * group.size()); }

 private:
  Header* header_;
  char* chunks_;
  int rank_;
  int64_t chunk_bytes_;
  double spin_seconds_;
  std::map<std::vector<int>, Group> groups_;
  Group* last_ = nullptr;
};

}  // namespace collectives

#endif  // COLLECTIVES_NATIVE_WINDOW_H_
