// Threads that wait between the rounds of a training.
#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace gristmill::train {

class Team {
public:
    explicit Team(unsigned size) {
        try {
            for (unsigned i = 1; i < size; ++i) threads_.emplace_back([this, i] { serve(i); });
        } catch (const std::system_error&) {
            // No more threads to be had: those there are do the work.
        }
        size_ = 1 + static_cast<unsigned>(threads_.size());
    }
    ~Team() {
        is_over_ = true;
        begin_round();
    }
    Team(const Team&) = delete;
    Team& operator=(const Team&) = delete;

    unsigned size() const { return size_; }

    // work(0) .. work(size - 1), each on its own thread; an exception in any of them is thrown here.
    void run(const std::function<void(unsigned)>& work) {
        if (size_ == 1) return work(0);
        work_ = &work;
        num_busy_ = size_ - 1;
        auto began = Clock::now();
        begin_round();
        guarded(0);
        auto ended = Clock::now();
        wait_until([this] { return num_busy_.load(std::memory_order_acquire) == 0; }, num_busy_);
        note(ended - began, Clock::now() - ended);
        if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
    }

    // Whether the others have lately been waited for longer than was worked: programs beside this one have the cores, and
    // for a while one thread alone is faster.
    bool is_held_up() const { return Clock::now() < alone_until_; }

private:
    using Clock = std::chrono::steady_clock;
    static constexpr std::chrono::milliseconds kNoted{4}, kShortest{8}, kLongest{256};

    void note(Clock::duration worked, Clock::duration waited) {
        worked_ += worked;
        waited_ += waited;
        if (worked_ + waited_ < kNoted) return;
        alone_for_ = waited_ > worked_ ? std::clamp<Clock::duration>(2 * alone_for_, kShortest, kLongest) : Clock::duration{};
        alone_until_ = Clock::now() + alone_for_;
        worked_ = waited_ = {};
    }
    void begin_round() {
        round_.fetch_add(1, std::memory_order_release);
        round_.notify_all();
    }
    void serve(unsigned index) {
        for (uint32_t done = 0;; ++done) {
            wait_until([&] { return round_.load(std::memory_order_acquire) != done; }, round_);
            if (is_over_) return;
            guarded(index);
            if (num_busy_.fetch_sub(1, std::memory_order_acq_rel) == 1) num_busy_.notify_one();
        }
    }
    // The next round mostly comes sooner than a sleeping thread would wake: it is looked for a while first.
    template <typename Claim>
    static void wait_until(const Claim& holds, const std::atomic<uint32_t>& value) {
        constexpr int kLooks = 5000;  // about 0.1 ms
        for (int i = 0; i < kLooks; ++i) {
            if (holds()) return;
#if defined(__SSE2__)
            _mm_pause();
#endif
        }
        for (uint32_t seen = value.load(); !holds(); seen = value.load()) value.wait(seen);
    }
    void guarded(unsigned index) {
        try {
            (*work_)(index);
        } catch (...) {
            std::lock_guard lock(mutex_);
            failure_ = std::current_exception();
        }
    }

    unsigned size_ = 1;
    Clock::duration worked_{}, waited_{}, alone_for_{};  // the first two since they were last looked at
    Clock::time_point alone_until_{};
    std::atomic<uint32_t> round_ = 0, num_busy_ = 0;
    const std::function<void(unsigned)>* work_ = nullptr;
    bool is_over_ = false;
    std::mutex mutex_;
    std::exception_ptr failure_;
    std::vector<std::jthread> threads_;  // last: they end before what they use
};

}  // namespace gristmill::train
