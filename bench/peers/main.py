"""Runs everything, in one process. bench/peers/run prepares what this needs."""

import json
import os
import re
import sys
import time

import options as command_line

QUICK_SECONDS = 180  # after which --quick begins no work but the last one, the growing context


def note(text):
    print(text, file=sys.stderr, flush=True)


def measure_all(options):
    """Records, the titles of what was left out, and what was wrong."""
    import torch

    import context
    import measure
    import report
    import works

    begin = time.monotonic()
    budget = measure.QUICK if options.quick else measure.THOROUGH
    records, left_out, wrong = [], [], []
    for threads in options.threads:
        torch.set_num_threads(threads)
        for make in works.all_works(options.quick, threads):
            work = make()
            title = report.title_of(work.name, work.shape, work.scalar, work.threads)
            if not re.search(options.only, title):
                continue
            if options.quick and time.monotonic() - begin > QUICK_SECONDS:
                left_out.append(title)
                continue
            results = measure.measure(work, budget)
            records += results
            note(f"{title}: " + ", ".join(report.cell(each) for each in results))
            wrong += [f"{title}: {each['peer']}" for each in results if each["agrees"] is False]
        if re.search(options.only, "needle"):
            difference, known = works.needle_difference()
            note(f"needle: torch's logits differ from heed's by {difference:.1e}, from the file's by {known:.1e}")
            if not max(difference, known) < 1e-3:
                wrong.append("needle: logits")
        if re.search(options.only, "context"):
            records += context.records(options.quick, threads)
    if left_out:
        note(f"left out, because the time of --quick was over: {'; '.join(left_out)}")
    return records, left_out, wrong


def main():
    options = command_line.parse()
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[variable] = str(max(options.threads))  # before torch and numpy are loaded

    import torch

    import library

    library.load(options.library)

    import machine
    import report

    if options.plots:
        import plots as drawing  # now: it had better fail before the work than after it

    about = machine.describe(options)
    note(report.text_of(about))
    if report.is_busy(about):
        note(f"WARNING: {report.BUSY}")

    begin = time.monotonic()
    with torch.inference_mode():
        records, left_out, wrong = measure_all(options)
    about["minutes"] = round((time.monotonic() - begin) / 60, 1)
    about["left_out"] = left_out
    for record in records:  # so that the records of several runs may be put together
        record |= {"processor": about["processor"], "commit": about["commit"]}

    if options.json:
        with open(options.json, "w") as file:
            json.dump(records, file, indent=1)
    pictures = drawing.draw(records, options.plots, about) if options.plots else []
    text = report.markdown(records, about, pictures, options.markdown)
    if options.markdown:
        with open(options.markdown, "w") as file:
            file.write(text)
    else:
        print(text)
    if wrong:
        sys.exit("These results are not heed's: " + "; ".join(wrong))


main()
