"""How a program of a script ended, in the languages in which shells tell it."""

from __future__ import annotations

import pytest

from rltui.diagnose.diagnose import diagnose
from rltui.diagnose.sources import text_source

KILLED = (
    "run.sh: line 14: 23841 Killed                  python train.py",
    "run.sh: Zeile 14: 23841 Getötet                 python train.py",
    "run.sh: ligne 14 : 23841 Processus arrêté      python train.py",
    "run.sh: línea 14: 23841 Terminado (killed)      python train.py",
    "run.sh: linha 14: 23841 Morto                   python train.py",
    "run.sh: riga 14: 23841 Ucciso                  python train.py",
    "run.sh: 行 14: 23841 已杀死               torchrun --nproc_per_node 8 train.py",
    "run.sh: 第 14 行:  3841 已杀死               python train.py",
    "run.sh: 行 14: 23841 強制終了            python train.py",
    "run.sh: 14줄: 23841 죽었음               python train.py",
    "run.sh: строка 14: 23841 Убито                   python train.py",
    "Getötet",
    "Processus arrêté",
    "Killed  45%|####      | 450/1000 [00:11<00:22]",
)
CRASHED = (
    "run.sh: line 14: 23841 Segmentation fault      (core dumped) python train.py",
    "run.sh: Zeile 14: 23841 Speicherzugriffsfehler  (Speicherabzug geschrieben) python train.py",
    "run.sh: ligne 14 : 23841 Erreur de segmentation  (core dumped) python train.py",
    "run.sh: línea 14: 23841 Violación de segmento  (`core' generado) python train.py",
    "run.sh: linha 14: 23841 Falha de segmentação (imagem do núcleo gravada) python train.py",
    "run.sh: riga 14: 23841 Errore di segmentazione (core dump creato) python train.py",
    "run.sh: 行 14: 23841 段错误               (核心已转储) python train.py",
    "run.sh: 行 14: 23841 セグメンテーション違反 (コアダンプ) python train.py",
    "run.sh: 14줄: 23841 세그멘테이션 오류 (코어 덤프됨) python train.py",
    "run.sh: строка 14: 23841 Ошибка сегментирования (стек памяти сброшен на диск) python train.py",
    "Erreur de segmentation (core dumped)",
)
NEITHER = (
    "Killed 3 of 12 enemies in episode",
    "the morto guard of the story was seen by python",
    "python answers: Tué en 1794",
    "答案: 已杀死 python",
    "Errore di segmentazione nella maschera: 0.12, python train.py",
)


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        *((line, "host_oom_slurm") for line in KILLED),
        *((line, "process_crashed") for line in CRASHED),
        *((line, "") for line in NEITHER),
    ],
)
def test_a_shell_tells_in_any_language_how_a_program_ended(line: str, cause: str) -> None:
    found = [one.id for one in diagnose([text_source("log", line)])]
    assert found[:1] == ([cause] if cause else [])
