// The memory that the ranks of one machine share, and how they wait for each other in it.
//
// A window is one file that every rank has mapped: a table of groups, then a ring of chunks per rank.
// A rank writes into its own chunks only, and members of a group read them. Each member arrives at
// every round of the group's collectives, by which it says what it has written and read.

#ifndef COLLECTIVES_NATIVE_WINDOW_H_
#define COLLECTIVES_NATIVE_WINDOW_H_

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <utility>
#include <vector>

#include "copy.h"

namespace collectives {

constexpr int kGroups = 1024;  // a mesh of 64 ranks has 729
constexpr int kAhead = 9;      // chunks that a rank may have written beyond the one it reads
// Of a rank: who waits for a round knows that all have read what lies kAhead + 1 chunks before it.
constexpr int kBuffers = 2 * kAhead + 2;
constexpr int kRounds = kAhead + 1;  // so many rounds apart, members may arrive at once
constexpr int64_t kAlignment = 64;
constexpr int64_t kPage = 4096;

// A number that grows, on a cache line of its own.
struct alignas(kAlignment) Word {
  std::atomic<uint32_t> value;
  std::atomic<uint32_t> sleepers;
};

// What the members of a group wait on: how often members have arrived at a round, each round in the
// word after the last one's, and how often they have read all that a collective gave them.
struct GroupWords {
  std::atomic<uint64_t> key;  // 0 where no group is
  Word arrived[kRounds];
  Word departed;
};

struct Header {
  GroupWords groups[kGroups];
};

inline double Now() {  // the clock of Python's time.perf_counter
  using std::chrono::steady_clock;
  return std::chrono::duration<double>(steady_clock::now().time_since_epoch()).count();
}

// Seconds of a processor that this thread has had.
inline double Worked() {
  timespec had;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &had);
  return static_cast<double>(had.tv_sec) + 1e-9 * static_cast<double>(had.tv_nsec);
}

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

inline bool Reached(const Word& word, uint32_t target) {
  return static_cast<int32_t>(word.value.load() - target) >= 0;
}

// Waits until a word has come to a target: for a while awake, leaving the core to who else wants it
// (the one that is waited for, perhaps), then asleep. A sleeper is
// counted before it looks at the word for the last time, and whoever completes the target looks
// for sleepers after that, so that one of them sees the other.
inline void Wait(Word& word, uint32_t target, double spin_seconds) {
  auto reached = [&] { return Reached(word, target); };
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
  uint64_t rounds = 0;       // of the collectives before the one that runs
  uint32_t collectives = 0;  // that it has taken part in
  int size() const { return static_cast<int>(members.size()); }
};

class Window {
 public:
  // `processes` are those of all ranks where they may read each other's memory, or else empty; they
  // do from `least_read` bytes on. Chunks are written past the caches where less than `bypass_below`
  // bytes a second can be written into them.
  Window(char* base, int rank, int64_t chunk_bytes, double spin_seconds,
         std::vector<pid_t> processes, int64_t least_read, double bypass_below)
      : header_(reinterpret_cast<Header*>(base)),
        chunks_(base + sizeof(Header)),
        rank_(rank),
        chunk_bytes_(chunk_bytes),
        spin_seconds_(spin_seconds),
        processes_(std::move(processes)),
        least_read_(least_read),
        bypass_(bypass_below) {}

  int64_t chunk_bytes() const { return chunk_bytes_; }
  Bypass& bypass() { return bypass_; }  // of this rank's chunks
  bool shares_cores() const { return spin_seconds_ == 0; }  // who waits sleeps at once

  char* Buffer(const Group& group, int member, int64_t chunk) const {
    return chunks_ + (group.members[member] * kBuffers + chunk % kBuffers) * chunk_bytes_;
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
    if (last_ != nullptr) AwaitLeft(*last_);
    last_ = &group;
    ++group.collectives;
  }

  // Of the rounds of one collective, which begin with 0.
  void Arrive(Group& group, int64_t round) {
    EndStream();
    Advance(Arrived(group, round), Target(group, round));
  }
  void Await(Group& group, int64_t round) {
    Wait(Arrived(group, round), Target(group, round), spin_seconds_);
  }
  bool HaveArrived(Group& group, int64_t round) const {
    return Reached(Arrived(group, round), Target(group, round));
  }
  void Leave(Group& group) { Advance(group.words->departed, group.collectives * group.size()); }
  void AwaitLeft(Group& group) {
    Wait(group.words->departed, group.collectives * group.size(), spin_seconds_);
  }

  // Whether members may read so many bytes of each other where they lie, in runs of so many.
  bool Reads(int64_t bytes, int64_t run_bytes) const {
    return !processes_.empty() && bytes >= least_read_ && run_bytes >= std::min(kPage, least_read_);
  }
  pid_t Process(const Group& group, int member) const { return processes_[group.members[member]]; }

 private:
  Word& Arrived(Group& group, int64_t round) const {
    return group.words->arrived[(group.rounds + round) % kRounds];
  }
  uint32_t Target(const Group& group, int64_t round) const {
    return static_cast<uint32_t>(((group.rounds + round) / kRounds + 1) * group.size());
  }

  Header* header_;
  char* chunks_;
  int rank_;
  int64_t chunk_bytes_;
  double spin_seconds_;
  std::vector<pid_t> processes_;
  int64_t least_read_;
  Bypass bypass_;
  std::map<std::vector<int>, Group> groups_;
  Group* last_ = nullptr;
};

}  // namespace collectives

#endif  // COLLECTIVES_NATIVE_WINDOW_H_
