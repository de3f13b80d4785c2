// The memory that the ranks of one machine share, and the waiting of ranks for each other in it.
//
// A window is memory that every rank has mapped. It has a table of groups, then a ring of chunks for
// each rank. A rank writes only into its own chunks, and the members of its groups read them. Each
// member arrives at every round of the group's collectives. By arriving it tells the other members
// which chunks it has written and read.

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
#include <string>
#include <utility>
#include <vector>

#include "copy.h"

namespace collectives {

constexpr int kAhead = 9;      // chunks that a rank may have written beyond the one that it reads
// Chunks of a rank. A member that has waited for a round knows that all members have read the chunks
// that are kAhead + 1 or more rounds older.
constexpr int kBuffers = 2 * kAhead + 2;
constexpr int kRounds = kAhead + 1;  // number of rounds at which members may be at the same time
constexpr int64_t kAlignment = 64;
constexpr int64_t kPage = 4096;

// A number that grows, on a cache line of its own.
struct alignas(kAlignment) Word {
  std::atomic<uint32_t> value;
  std::atomic<uint32_t> sleepers;
};

// The words on which the members of a group wait.
struct GroupWords {
  std::atomic<uint64_t> key;  // 0 if the entry has no group
  Word arrived[kRounds];      // arrivals of members at a round; round i counts in word i % kRounds
  Word departed;              // members that have read all data of a collective
};

// Returns the entries of the table of groups. Each prime factor p of the number of ranks is a mesh
// axis; a group takes all p coordinates of it or one. So a mesh of 128 ranks has 3^7 groups. The table
// stays half empty, and has space for the groups of small meshes of other shapes.
inline int64_t GroupEntries(int ranks) {
  int64_t groups = 1;
  for (int factor = 2; ranks > 1; ++factor) {
    for (; ranks % factor == 0; ranks /= factor) groups *= factor + 1;
  }
  int64_t entries = 1024;
  while (entries < 2 * groups) entries *= 2;
  return entries;
}

inline int64_t WindowBytes(int ranks, int64_t chunk_bytes) {
  return GroupEntries(ranks) * static_cast<int64_t>(sizeof(GroupWords)) +
         ranks * kBuffers * chunk_bytes;
}

inline double Now() {  // the clock of Python's time.perf_counter
  using std::chrono::steady_clock;
  return std::chrono::duration<double>(steady_clock::now().time_since_epoch()).count();
}

// Processor seconds of this thread.
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

// Waits until a word has reached a target. For `spin_seconds` it spins and yields the core, perhaps to
// the rank for which it waits; then it sleeps. A sleeper counts itself before it reads the word for
// the last time, and `Advance` reads that count after it has written the word. So either the sleeper
// sees the word or `Advance` sees the sleeper.
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

// Adds one to a word; wakes all sleepers if the word has reached the target.
inline void Advance(Word& word, uint32_t target) {
  if (word.value.fetch_add(1) + 1 == target && word.sleepers.load() != 0) {
    syscall(SYS_futex, &word.value, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
}

// A group as this rank sees it. The counts wrap around like the words.
struct Group {
  GroupWords* words = nullptr;
  std::vector<int> members;  // numbers of the members in the window, in the group's order
  int place = 0;             // position of this rank among the members
  uint64_t rounds = 0;       // rounds of all collectives before the running one
  uint32_t collectives = 0;  // collectives in which this rank has taken part
  int size() const { return static_cast<int>(members.size()); }
};

class Window {
 public:
  // The memory has `WindowBytes(ranks, chunk_bytes)` bytes, and a chunk has a cache line for each rank.
  // `processes` has the numbers of all ranks' processes if they may read each other's memory,
  // otherwise it is empty. A rank reads another one's memory directly only for `least_read` bytes or
  // more. `shares_cores` says whether one of the ranks has less than a core. Ranks that disagree on
  // these values would wait for each other. Each rank has its own `spin_seconds`; 0 lets it sleep at
  // once. Writes into chunks bypass the caches while they are slower than `bypass_below` bytes a
  // second.
  Window(char* base, int rank, int ranks, int64_t chunk_bytes, double spin_seconds,
         bool shares_cores, std::vector<pid_t> processes, int64_t least_read, double bypass_below)
      : words_(reinterpret_cast<GroupWords*>(base)),
        entries_(GroupEntries(ranks)),
        chunks_(base + entries_ * sizeof(GroupWords)),
        rank_(rank),
        chunk_bytes_(chunk_bytes),
        spin_seconds_(spin_seconds),
        shares_cores_(shares_cores),
        processes_(std::move(processes)),
        least_read_(least_read),
        bypass_(bypass_below) {}

  int64_t chunk_bytes() const { return chunk_bytes_; }
  Bypass& bypass() { return bypass_; }  // for this rank's chunks
  bool shares_cores() const { return shares_cores_; }

  char* Buffer(const Group& group, int member, int64_t chunk) const {
    return chunks_ + (group.members[member] * kBuffers + chunk % kBuffers) * chunk_bytes_;
  }

  // Returns the group of these ranks. All of them find its words by the same key.
  Group& Find(const std::vector<int>& members) {
    Group& group = groups_[members];
    if (group.words != nullptr) return group;
    uint64_t key = 1469598103934665603u;  // FNV-1a
    for (int member : members) key = (key ^ static_cast<uint64_t>(member + 1)) * 1099511628211u;
    if (key == 0) key = 1;
    for (int64_t probe = 0; probe < entries_; ++probe) {
      GroupWords& words = words_[(key + probe) % entries_];
      uint64_t present = 0;
      if (words.key.compare_exchange_strong(present, key) || present == key) {
        group.words = &words;
        group.members = members;
        while (members[group.place] != rank_) ++group.place;
        return group;
      }
    }
    throw std::runtime_error("a window has space for " + std::to_string(entries_) +
                             " groups. Got one more.");
  }

  // Called before this rank writes into its chunks: waits until they have been read in its last
  // collective, whose group may be another one.
  void Enter(Group& group) {
    if (last_ != nullptr) AwaitLeft(*last_);
    last_ = &group;
    ++group.collectives;
  }

  // `round` counts the rounds of one collective from 0.
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

  // Whether members may read `bytes` bytes in runs of `run_bytes` from each other's memory.
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

  GroupWords* words_;
  int64_t entries_;
  char* chunks_;
  int rank_;
  int64_t chunk_bytes_;
  double spin_seconds_;
  bool shares_cores_;
  std::vector<pid_t> processes_;
  int64_t least_read_;
  Bypass bypass_;
  std::map<std::vector<int>, Group> groups_;
  Group* last_ = nullptr;
};

}  // namespace collectives

#endif  // COLLECTIVES_NATIVE_WINDOW_H_
